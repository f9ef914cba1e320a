// The fields that decide how tokens are chosen.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>

#include "field_reader.h"
#include "lmtp/base/text.h"
#include "mask_codec.h"

namespace lmtp::protocol {
namespace {

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

SamplingParams FieldReader::params() {
  SamplingParams params;
  auto field = Field::kFirstParam;
  for (const SamplingParam& row : kSamplingTable) {
    const auto read = [&]<typename T>(T SamplingParams::*member) {
      if constexpr (std::is_same_v<T, float>) {
        params.*member = number(field, params.*member, row.range);
      } else if constexpr (std::is_same_v<T, int>) {
        params.*member = whole(field, params.*member, row.range);
      } else if constexpr (std::is_same_v<T, bool>) {
        params.*member = optional_bool(field).value_or(params.*member);
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
  params.stop_token_ids = stop_token_ids();
  params.raw_logprobs = raw_logprobs();
  params.mask = optional_mask();
  return params;
}

SamplingChanges FieldReader::changes() {
  SamplingChanges changes;
  const auto& value = element(Field::kParams);
  if (!value) return changes;
  if (!value->is_object()) {
    fail(Field::kParams, seen(*value) + "; allowed is an object of sampling parameters");
    return changes;
  }
  FieldReader reader(value->get_object().value());
  changes.values = reader.params();
  constexpr auto kFirst = static_cast<std::size_t>(Field::kFirstParam);
  for (std::size_t i = 0; i < kNumFields; ++i) {
    if (!reader.has(static_cast<Field>(i))) continue;
    if (i >= kFirst && i < kFirst + kSamplingTable.size()) {
      changes.given.set(i - kFirst);
    } else {
      reader.fail(static_cast<Field>(i),
                  "cannot be changed; allowed are temperature to logit_bias of GENERATE");
    }
  }
  if (reader.failed()) fail("params." + reader.error());
  return changes;
}

std::vector<StreamId> FieldReader::streams() {
  const std::string allowed =
      "; allowed are 1 to " + std::to_string(kMaxForks) + " different whole numbers of 64 bits";
  std::vector<StreamId> streams;
  const auto& value = element(Field::kStreams);
  simdjson::dom::array array;
  if (!value || value->get_array().get(array) != simdjson::SUCCESS) {
    fail(Field::kStreams, (value ? seen(*value) : "is missing") + allowed);
    return streams;
  }
  if (array.size() == 0 || array.size() > kMaxForks) {
    fail(Field::kStreams, "has " + std::to_string(array.size()) + " entries" + allowed);
    return streams;
  }
  for (const simdjson::dom::element item : array) {
    StreamId id = 0;
    if (item.get_int64().get(id) != simdjson::SUCCESS) {
      fail(Field::kStreams, "entry " + std::to_string(streams.size()) + " " + seen(item) + allowed);
    } else if (std::ranges::find(streams, id) != streams.end()) {
      fail(Field::kStreams, "has " + std::to_string(id) + " twice" + allowed);
    }
    streams.push_back(id);
  }
  return streams;
}

int FieldReader::top_logprobs() {
  constexpr std::size_t kRow = [] {
    return std::ranges::find(kSamplingTable, kTopLogprobsName, &SamplingParam::name) -
           kSamplingTable.begin();
  }();
  const auto field = static_cast<Field>(static_cast<std::size_t>(Field::kFirstParam) + kRow);
  return whole(field, 0, kSamplingTable[kRow].range);
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

int FieldReader::whole_within(Field field, int absent, int low, int high) {
  const auto& value = element(field);
  if (!value) return absent;
  std::int64_t read = 0;
  if (value->get_int64().get(read) == simdjson::SUCCESS && read >= low && read <= high) {
    return static_cast<int>(read);
  }
  fail(field, seen(*value) + "; allowed is a whole number from " + std::to_string(low) + " to " +
                  std::to_string(high));
  return absent;
}

std::int64_t FieldReader::count(Field field) {
  const auto& value = element(field);
  if (!value) return 0;
  std::int64_t read = 0;
  if (value->get_int64().get(read) == simdjson::SUCCESS && read >= 0) return read;
  fail(field, seen(*value) + "; allowed is a whole number from 0 to " +
                  std::to_string(std::numeric_limits<std::int64_t>::max()));
  return 0;
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

std::vector<TokenId> FieldReader::stop_token_ids() {
  const auto& value = element(Field::kStopTokenIds);
  if (!value) return {};
  const std::size_t count = value->is_array() ? value->get_array().value().size() : 0;
  if (count <= kMaxStopTokens) return required_tokens(Field::kStopTokenIds, true);
  fail(Field::kStopTokenIds, "has " + std::to_string(count) + " token ids; allowed are at most " +
                                 std::to_string(kMaxStopTokens));
  return {};
}

bool FieldReader::raw_logprobs() {
  const auto& value = element(Field::kLogprobs);
  const std::string_view read = is_text(Field::kLogprobs) ? value->get_string().value() : "";
  if (value && read != "raw" && read != "processed") {
    fail(Field::kLogprobs,
         (read.empty() ? seen(*value) : "is '" + shortened(read, kMaxUnknownKeyBytes) + "'") +
             "; allowed are processed and raw");
  }
  return read == "raw";
}

std::shared_ptr<const TokenMask> FieldReader::optional_mask() {
  const auto& value = element(Field::kMask);
  if (!value) return nullptr;
  if (!value->is_string()) {
    fail(Field::kMask, seen(*value) + "; allowed is a string of base64");
    return nullptr;
  }
  std::shared_ptr<const TokenMask> mask = decode_mask(value->get_string().value());
  if (!mask) {
    fail(Field::kMask, "is not base64; allowed are A to Z, a to z, 0 to 9, + and /, and = behind");
  } else if (!allows_any(*mask)) {
    fail(Field::kMask, "allows no token; at least one bit must be set");
  }
  return mask;
}

}  // namespace lmtp::protocol
