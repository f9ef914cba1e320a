#include "field_reader.h"

#include <algorithm>
#include <bitset>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>

#include "lmtp/base/text.h"
#include "lmtp/protocol/codec.h"

namespace lmtp::protocol {
namespace {

using simdjson::dom::element;
using simdjson::dom::element_type;

constexpr std::size_t kMaxUnknownKeyBytes = 64;
constexpr std::string_view kTokensAllowed = "allowed is an array of token ids, whole numbers >= 0";

constexpr std::array kFieldNames = [] {
  std::array<std::string_view, kNumFields> names = {"stream_id", "model", "prompt", "scored",
                                                    "data"};
  std::ranges::transform(kSamplingTable, names.begin() + static_cast<int>(Field::kFirstParam),
                         &SamplingParam::name);
  return names;
}();

std::string_view type_text(const element& value) {
  switch (value.type()) {
    case element_type::ARRAY:
      return "an array";
    case element_type::OBJECT:
      return "an object";
    case element_type::INT64:
    case element_type::UINT64:
      return "a whole number";
    case element_type::DOUBLE:
      return "a fraction";
    case element_type::STRING:
      return "a string";
    case element_type::BOOL:
      return "a truth value";
    case element_type::NULL_VALUE:
      return "null";
  }
  return "something else";
}

bool is_number(const element& value) {
  return value.is_int64() || value.is_uint64() || value.is_double();
}

// How an error message shows an element of the wrong type or size. 5.0 keeps its point, to differ
// from the valid 5.
std::string seen(const element& value) {
  if (!is_number(value)) return "is " + std::string(type_text(value));
  if (value.is_int64()) return "is " + std::to_string(value.get_int64().value());
  if (value.is_uint64()) return "is " + std::to_string(value.get_uint64().value());
  std::string text = number_text(value.get_double().value());
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return "is " + text;
}

// The token id that a bias key spells: decimal digits only.
std::optional<TokenId> parse_bias_key(std::string_view key) {
  TokenId id = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
  if (error != std::errc() || end != key.data() + key.size() || key.empty() || key[0] == '-') {
    return std::nullopt;
  }
  return id;
}

// Sorts both vectors by id; LMQL sends them sorted.
void sort_bias(LogitBias& bias) {
  if (std::is_sorted(bias.ids.begin(), bias.ids.end())) return;
  std::vector<std::size_t> order(bias.ids.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return bias.ids[a] < bias.ids[b]; });
  LogitBias sorted;
  sorted.ids.reserve(order.size());
  sorted.values.reserve(order.size());
  for (const std::size_t i : order) {
    sorted.ids.push_back(bias.ids[i]);
    sorted.values.push_back(bias.values[i]);
  }
  bias = std::move(sorted);
}

}  // namespace

std::string_view field_name(Field field) { return kFieldNames[static_cast<std::size_t>(field)]; }

FieldReader::FieldReader(simdjson::dom::object object) {
  std::bitset<kNumFields> seen_fields;
  for (const auto& [key, value] : object) {
    const auto* const found = std::find(kFieldNames.begin(), kFieldNames.end(), key);
    if (found == kFieldNames.end()) {
      if (unknown_keys_.size() < kMaxUnknownKeysKept) {
        unknown_keys_.push_back(shortened(key, kMaxUnknownKeyBytes));
      }
      continue;
    }
    const auto index = static_cast<std::size_t>(found - kFieldNames.begin());
    if (seen_fields.test(index)) {
      fail(*found, "is given twice; once is allowed");
      elements_[index].reset();  // of two stream ids, neither is used
      continue;
    }
    seen_fields.set(index);
    if (!value.is_null()) elements_[index] = value;
  }
}

void FieldReader::fail(Field field, std::string_view what) { fail(field_name(field), what); }

void FieldReader::fail(std::string_view field, std::string_view what) {
  if (failed()) return;
  error_.append(field).append(": ").append(what);
}

std::optional<StreamId> FieldReader::peek_stream_id() const {
  const auto& value = element(Field::kStreamId);
  if (!value || !value->is_int64()) return std::nullopt;
  return value->get_int64().value();
}

StreamId FieldReader::required_stream_id() {
  const std::optional<StreamId> id = peek_stream_id();
  if (id) return *id;
  constexpr std::string_view kAllowed = "; allowed is a whole number of 64 bits";
  const auto& value = element(Field::kStreamId);
  fail(Field::kStreamId, (value ? seen(*value) : "is missing") + std::string(kAllowed));
  return 0;
}

std::string FieldReader::optional_string(Field field, std::size_t max_bytes) {
  const auto& value = element(field);
  if (!value) return {};
  if (!value->is_string()) {
    fail(field, seen(*value) + "; allowed is a string");
    return {};
  }
  const std::string_view text = value->get_string().value();
  if (text.size() > max_bytes) {
    fail(field, "has " + std::to_string(text.size()) + " bytes; allowed are at most " +
                    std::to_string(max_bytes));
    return {};
  }
  return std::string(text);
}

std::vector<TokenId> FieldReader::required_tokens(Field field, bool may_be_empty) {
  std::vector<TokenId> tokens;
  const auto& value = element(field);
  if (!value || !value->is_array()) {
    fail(field, (value ? seen(*value) : "is missing") + "; " + std::string(kTokensAllowed));
    return tokens;
  }
  const simdjson::dom::array array = value->get_array().value();
  tokens.reserve(array.size());
  for (const simdjson::dom::element item : array) {
    std::int64_t id = 0;
    if (item.get_int64().get(id) != simdjson::SUCCESS || id < 0 ||
        id > std::numeric_limits<TokenId>::max()) {
      fail(field, "entry " + std::to_string(tokens.size()) + " " + seen(item) + "; " +
                      std::string(kTokensAllowed));
      return {};
    }
    tokens.push_back(static_cast<TokenId>(id));
  }
  if (tokens.empty() && !may_be_empty) fail(field, "is empty; at least one token id is needed");
  return tokens;
}

SamplingParams FieldReader::params() {
  SamplingParams params;
  auto field = Field::kFirstParam;
  for (const SamplingParam& row : kSamplingTable) {
    const auto read = [&]<typename T>(T SamplingParams::*member) {
      if constexpr (std::is_same_v<T, float>) {
        params.*member = number(field, params.*member, row.range);
      } else if constexpr (std::is_same_v<T, int>) {
        params.*member = whole(field, params.*member, row.range);
      } else if constexpr (std::is_same_v<T, std::uint64_t>) {
        const std::optional<std::uint64_t> seed = optional_seed(field);
        params.has_seed = seed.has_value();
        params.*member = seed.value_or(0);
      } else {
        params.*member = optional_bias(field, row.range);
      }
    };
    std::visit(read, row.member);
    field = static_cast<Field>(static_cast<int>(field) + 1);
  }
  return params;
}

float FieldReader::number(Field field, float absent, const ParamRange& range) {
  const auto& value = element(field);
  if (!value) return absent;
  const double read = is_number(*value) ? value->get_double().value() : std::nan("");
  const bool high_enough = range.low_allowed ? read >= range.low : read > range.low;
  if (high_enough && read <= range.high) {
    // A positive number that a float would round to 0 must stay positive, to be in the range.
    const auto rounded = static_cast<float>(read);
    if (rounded == 0.0F && read > 0.0) return std::numeric_limits<float>::min();
    return rounded;
  }
  fail(field, seen(*value) + "; allowed is a number " + (range.low_allowed ? ">= " : "> ") +
                  number_text(range.low) + " and <= " + number_text(range.high));
  return absent;
}

int FieldReader::whole(Field field, int absent, const ParamRange& range) {
  const auto low = static_cast<int>(range.low);
  const auto cap = static_cast<int>(range.high);
  const auto& value = element(field);
  if (!value) return absent;
  if (value->is_uint64() && !value->is_int64()) return cap;
  if (value->is_int64()) {
    const std::int64_t read = value->get_int64().value();
    if (read >= low) return static_cast<int>(std::min<std::int64_t>(read, cap));
  }
  fail(field, seen(*value) + "; allowed is a whole number >= " + std::to_string(low));
  return absent;
}

std::optional<std::uint64_t> FieldReader::optional_seed(Field field) {
  const auto& value = element(field);
  if (!value) return std::nullopt;
  if (value->is_uint64()) return value->get_uint64().value();
  if (value->is_int64()) return static_cast<std::uint64_t>(value->get_int64().value());
  fail(field, seen(*value) + "; allowed is a whole number of 64 bits");
  return std::nullopt;
}

std::shared_ptr<const LogitBias> FieldReader::optional_bias(Field field, const ParamRange& range) {
  const auto& value = element(field);
  if (!value) return nullptr;
  if (!value->is_object()) {
    fail(field, seen(*value) + "; allowed is an object of token id: number");
    return nullptr;
  }
  auto bias = std::make_shared<LogitBias>();
  const simdjson::dom::object object = value->get_object().value();
  bias->ids.reserve(object.size());
  bias->values.reserve(object.size());
  for (const auto& [key, item] : object) {
    const std::optional<TokenId> id = parse_bias_key(key);
    if (!id) {
      fail(field, "key '" + shortened(key, kMaxUnknownKeyBytes) +
                      "' is not a token id; allowed are whole numbers >= 0");
      return nullptr;
    }
    const double read = is_number(item) ? item.get_double().value() : std::nan("");
    if (!(read >= range.low && read <= range.high)) {
      fail(field, "the value of " + std::to_string(*id) + " " + seen(item) +
                      "; allowed is a number >= -1e30 and <= 1e30");
      return nullptr;
    }
    bias->ids.push_back(*id);
    bias->values.push_back(static_cast<float>(read));
  }
  if (bias->ids.empty()) return nullptr;
  sort_bias(*bias);
  const auto twice = std::adjacent_find(bias->ids.begin(), bias->ids.end());
  if (twice != bias->ids.end()) {
    fail(field, "token id " + std::to_string(*twice) + " is given twice; once is allowed");
    return nullptr;
  }
  return bias;
}

}  // namespace lmtp::protocol
