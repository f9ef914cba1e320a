#include "json_fields.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <type_traits>
#include <variant>

#include "lmtp/base/text.h"
#include "lmtp/protocol/codec.h"

namespace lmtp::server {
namespace {

constexpr std::size_t kShownKeyBytes = 64;

// They name who asks and what is kept of the answer, or allow what is not done here.
constexpr std::string_view kIgnoredKeys[] = {
    "user",
    "store",
    "metadata",
    "service_tier",
    "request_id",
    "safety_identifier",
    "options",
    "prompt_cache_key",
    "prompt_cache_retention",
    "parallel_tool_calls",
};

// A positive number that a float would round to 0 must stay positive, to be in its range.
float to_float(double number) {
  const auto rounded = static_cast<float>(number);
  return rounded == 0.0F && number > 0.0 ? std::numeric_limits<float>::min() : rounded;
}

std::optional<TokenId> id_of_key(const std::string& key) {
  TokenId id = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
  const bool is_whole = error == std::errc() && end == key.data() + key.size() && id >= 0;
  return is_whole ? std::optional(id) : std::nullopt;
}

}  // namespace

std::string seen(const Json& value) {
  if (value.is_number_float()) return "is " + number_text(value.get<double>());
  if (value.is_number()) return "is " + value.dump();
  if (value.is_boolean()) return value.get<bool>() ? "is true" : "is false";
  if (value.is_array()) return "is an array";
  if (value.is_object()) return "is an object";
  return value.is_string() ? "is a string" : "is null";
}

Result<std::vector<TokenId>> token_ids(const Json& value) {
  std::vector<TokenId> ids;
  ids.reserve(value.size());
  for (const Json& item : value) {
    const bool is_id = item.is_number_unsigned() &&
                       item.get<std::uint64_t>() <= std::numeric_limits<TokenId>::max();
    if (!is_id) {
      return Error{ErrorCode::kInvalid, "[" + std::to_string(ids.size()) + "] " + seen(item) +
                                            "; allowed are token ids, whole numbers >= 0"};
    }
    ids.push_back(item.get<TokenId>());
  }
  return ids;
}

void JsonFields::fail(std::string_view field, std::string_view what) {
  fail(std::string(field) + ": " + std::string(what));
}

void JsonFields::fail(std::string whole) {
  if (!failed()) error_ = Error{ErrorCode::kInvalid, std::move(whole)};
}

const Json* JsonFields::find(std::string_view field) const {
  const Json* value = find_json(object_, field);
  if (value != nullptr) found_.push_back(value);
  return value;
}

const Json* JsonFields::given(std::string_view field) const {
  const Json* value = find(field);
  return value != nullptr && *value == "" ? nullptr : value;
}

bool JsonFields::boolean(std::string_view field, bool absent) {
  const Json* value = given(field);
  if (value == nullptr) return absent;
  if (value->is_boolean()) return value->get<bool>();
  fail(field, seen(*value) + "; allowed are true and false");
  return absent;
}

std::optional<std::int64_t> JsonFields::whole(std::string_view field, std::int64_t low,
                                              std::int64_t high) {
  const Json* value = given(field);
  if (value == nullptr) return std::nullopt;
  const auto read = json_integer(*value);
  if (read && *read >= low && *read <= high) return read;
  fail(field, seen(*value) + "; allowed is a whole number from " + std::to_string(low) + " to " +
                  std::to_string(high));
  return std::nullopt;
}

std::optional<float> JsonFields::number(std::string_view field, const ParamRange& range) {
  const Json* value = given(field);
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) {
    const auto read = value->get<double>();
    const bool high_enough = range.low_allowed ? read >= range.low : read > range.low;
    if (high_enough && read <= range.high) return to_float(read);
  }
  fail(field, seen(*value) + "; allowed is a number " + (range.low_allowed ? ">= " : "> ") +
                  number_text(range.low) + " and <= " + number_text(range.high));
  return std::nullopt;
}

const std::string* JsonFields::text(std::string_view field) {
  const Json* value = find(field);
  if (value == nullptr) return nullptr;
  if (!value->is_string()) fail(field, seen(*value) + "; allowed is a string");
  return value->get_ptr<const std::string*>();
}

std::vector<TokenId> JsonFields::ids(std::string_view field, std::size_t num_max) {
  const Json* value = given(field);
  if (value == nullptr) return {};
  if (!value->is_array() || value->size() > num_max) {
    const std::string what =
        value->is_array() ? "has " + std::to_string(value->size()) + " ids" : seen(*value);
    fail(field,
         what + "; allowed is an array of at most " + std::to_string(num_max) + " token ids");
    return {};
  }
  auto ids = token_ids(*value);
  if (ids) return std::move(*ids);
  fail(field, ids.error().message);
  return {};
}

std::vector<std::string> JsonFields::strings(std::string_view field, std::size_t num_max,
                                             std::size_t bytes_max) {
  const Json* value = find(field);
  if (value == nullptr) return {};
  const std::string allowed = "; allowed are at most " + std::to_string(num_max) +
                              " strings of 1 to " + std::to_string(bytes_max) + " bytes";
  const Json one = value->is_string() ? Json::array({*value}) : Json();
  const Json& all = value->is_string() ? one : *value;
  if (!all.is_array() || all.size() > num_max) {
    fail(field,
         (all.is_array() ? "has " + std::to_string(all.size()) + " strings" : seen(all)) + allowed);
    return {};
  }
  std::vector<std::string> strings;
  for (const Json& item : all) {
    const auto* text = item.get_ptr<const std::string*>();
    if (text == nullptr || text->empty() || text->size() > bytes_max) {
      fail(field,
           "[" + std::to_string(strings.size()) + "] " +
               (text == nullptr ? seen(item) : "has " + std::to_string(text->size()) + " bytes") +
               allowed);
      return {};
    }
    strings.push_back(*text);
  }
  return strings;
}

std::optional<std::uint64_t> JsonFields::seed(std::string_view field) {
  const Json* value = given(field);
  if (value == nullptr) return std::nullopt;
  if (value->is_number_unsigned()) return value->get<std::uint64_t>();
  if (const auto read = json_integer(*value)) return static_cast<std::uint64_t>(*read);
  fail(field, seen(*value) + "; allowed is a whole number of 64 bits");
  return std::nullopt;
}

std::shared_ptr<const LogitBias> JsonFields::logit_bias(std::string_view field) {
  const Json* value = given(field);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) {
    fail(field, seen(*value) + "; allowed is an object of token id: number");
    return nullptr;
  }
  std::map<TokenId, float> sorted;
  for (const auto& [key, bias] : value->items()) {
    const auto id = id_of_key(key);
    const bool is_new = id && sorted.emplace(*id, 0.0F).second;
    if (!is_new) {
      fail(field, "key '" + shortened(key, kShownKeyBytes) + "' " +
                      (id ? "is given twice; once is allowed"
                          : "is not a token id; allowed are whole numbers >= 0"));
      return nullptr;
    }
    if (!bias.is_number() || std::abs(bias.get<double>()) > kMaxBias) {
      fail(field, "of token " + key + " " + seen(bias) + "; allowed is a number from -" +
                      number_text(kMaxBias) + " to " + number_text(kMaxBias));
      return nullptr;
    }
    sorted[*id] = static_cast<float>(bias.get<double>());
  }
  auto bias = std::make_shared<LogitBias>();
  for (const auto& [id, added] : sorted) {
    bias->ids.push_back(id);
    bias->values.push_back(added);
  }
  return bias;
}

void JsonFields::params(std::initializer_list<std::string_view> others, SamplingParams& params) {
  for (const SamplingParam& row : kSamplingTable) {
    if (std::ranges::find(others, row.name) != others.end()) continue;
    if (row.name == kTopKName && find(row.name) != nullptr && *find(row.name) == -1) continue;
    const auto read = [&]<typename T>(T SamplingParams::*member) {
      if constexpr (std::is_same_v<T, float>) {
        params.*member = number(row.name, row.range).value_or(params.*member);
      } else if constexpr (std::is_same_v<T, int>) {
        const auto given = whole(row.name, static_cast<std::int64_t>(row.range.low),
                                 std::numeric_limits<std::int64_t>::max());
        const auto cap = static_cast<std::int64_t>(row.range.high);
        if (given) params.*member = static_cast<int>(std::min(*given, cap));
      } else if constexpr (std::is_same_v<T, bool>) {
        params.*member = boolean(row.name, params.*member);
      } else if constexpr (std::is_same_v<T, std::uint64_t>) {
        const auto given = seed(row.name);
        params.has_seed = given.has_value();
        params.*member = given.value_or(0);
      } else {
        params.*member = logit_bias(row.name);
      }
    };
    std::visit(read, row.member);
  }
}

std::vector<std::string> JsonFields::unknown_keys() const {
  std::vector<std::string> unknown;
  for (const auto& [key, value] : object_.items()) {
    if (unknown.size() == protocol::kMaxUnknownKeysKept) break;
    const bool is_known = value.is_null() || std::ranges::count(found_, &value) > 0 ||
                          std::ranges::count(kIgnoredKeys, key) > 0;
    if (!is_known) unknown.push_back(shortened(key, kShownKeyBytes));
  }
  return unknown;
}

}  // namespace lmtp::server
