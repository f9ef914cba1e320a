#include "json_fields.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "lmtp/base/text.h"
#include "lmtp/protocol/codec.h"

lmtp::FieldValue lmtp::FieldAccess<lmtp::Json>::value(const Json& json) {
  if (const auto whole = json_integer(json)) return *whole;
  if (json.is_number_unsigned()) return json.get<std::uint64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_array()) return ArrayValue{json.size()};
  if (json.is_object()) return ObjectValue{json.size()};
  const auto* const text = json.get_ptr<const std::string*>();
  return text != nullptr ? FieldValue(std::string_view(*text)) : FieldValue();
}

namespace lmtp::server {
namespace {

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

}  // namespace

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

const Json* JsonFields::find(std::string_view field) const {
  if (on_find != nullptr) on_find(field);
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
  return value == nullptr ? absent : as_bool(field, field_value(*value)).value_or(absent);
}

std::optional<std::int64_t> JsonFields::whole(std::string_view field, std::int64_t low,
                                              std::int64_t high) {
  const Json* value = given(field);
  return value == nullptr ? std::nullopt : as_whole(field, field_value(*value), low, high);
}

std::optional<float> JsonFields::number(std::string_view field, const ParamRange& range) {
  const Json* value = given(field);
  return value == nullptr ? std::nullopt : as_number(field, field_value(*value), range);
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
  return as_short_texts(field, *value, num_max, bytes_max);
}

std::string read_cache_salt(JsonFields& fields) {
  constexpr std::string_view kField = "cache_salt";
  const std::string* const salt = fields.given(kField) != nullptr ? fields.text(kField) : nullptr;
  if (salt == nullptr) return {};
  if (salt->size() > protocol::kMaxCacheSaltBytes) {
    fields.fail(kField, "has " + std::to_string(salt->size()) + " bytes; allowed are at most " +
                            std::to_string(protocol::kMaxCacheSaltBytes));
  }
  return *salt;
}

int read_priority(JsonFields& fields) {
  using Limits = std::numeric_limits<std::int32_t>;
  return static_cast<int>(fields.whole("priority", Limits::min(), Limits::max()).value_or(0));
}

void JsonFields::params(std::initializer_list<std::string_view> others, SamplingParams& params) {
  for (const SamplingParam& row : kSamplingTable) {
    if (std::ranges::find(others, row.name) != others.end()) continue;
    const Json* value = given(row.name);
    const bool is_off = row.name == kTopKName && value != nullptr && *value == -1;
    if (value != nullptr && !is_off) read_param(row, *value, params);
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
