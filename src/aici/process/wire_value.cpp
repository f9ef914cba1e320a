#include "process/wire_value.h"

namespace lmtp::aici {

WireValue WireValue::at(const std::string& key) const {
  if (!json_->is_object()) fail("must be an object");
  const auto found = json_->find(key);
  if (found == json_->end()) fail("lacks " + key);
  return {*found, below(key)};
}

std::optional<WireValue> WireValue::find(const std::string& key) const {
  const Json* const found = find_json(*json_, key);
  if (found == nullptr) return std::nullopt;
  return WireValue(*found, below(key));
}

std::vector<WireValue> WireValue::list() const {
  if (!json_->is_array()) fail("must be a list");
  std::vector<WireValue> values;
  values.reserve(json_->size());
  for (const Json& item : *json_) values.emplace_back(item, path_ + "[]");
  return values;
}

std::vector<std::pair<std::string, WireValue>> WireValue::members() const {
  if (!json_->is_object()) fail("must be an object");
  std::vector<std::pair<std::string, WireValue>> members;
  for (const auto& [key, value] : json_->items()) {
    members.emplace_back(key, WireValue(value, below(key)));
  }
  return members;
}

std::string WireValue::text() const {
  if (!json_->is_string()) fail("must be a text");
  return json_->get<std::string>();
}

bool WireValue::flag() const {
  if (!json_->is_boolean()) fail("must be true or false");
  return json_->get<bool>();
}

double WireValue::number() const {
  if (!json_->is_number()) fail("must be a number");
  return json_->get<double>();
}

std::int64_t WireValue::integer(std::int64_t min, std::int64_t max) const {
  const std::optional<std::int64_t> value = json_integer(*json_);
  if (!value || *value < min || *value > max) {
    fail("must be a whole number from " + std::to_string(min) + " to " + std::to_string(max));
  }
  return *value;
}

std::vector<TokenId> WireValue::tokens(int vocab_size) const {
  std::vector<TokenId> tokens;
  for (const WireValue& token : list()) {
    tokens.push_back(static_cast<TokenId>(token.integer(0, vocab_size - 1)));
  }
  return tokens;
}

}  // namespace lmtp::aici
