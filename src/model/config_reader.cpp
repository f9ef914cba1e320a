#include "config_reader.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>

#include "lmtp/base/text.h"

namespace lmtp::model {

// Shared by an object and its nested objects.
struct ConfigReader::Kept {
  Json root;
  ConfigOptions options;
  std::optional<Error> error;
  std::vector<std::string> notes;
};

namespace {

constexpr std::size_t kReasonBytesMax = 1000;
// config.json is parsed several times before a model is loaded; published ones have some KB.
constexpr std::size_t kConfigBytesMax = std::size_t{2} << 20;

// Makes text from a file safe for a log, a terminal and a client: one line of limited length.
std::string as_line(std::string text) {
  if (text.size() > kReasonBytesMax) {
    text.resize(utf8_prefix(text, kReasonBytesMax).size());
    text += " ...";
  }
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7F; }, ' ');
  return text;
}

}  // namespace

ConfigReader::ConfigReader(std::string origin, std::shared_ptr<Kept> kept, const Json* object)
    : origin_(std::move(origin)), kept_(std::move(kept)), object_(object) {}

Result<ConfigReader> ConfigReader::keep(Result<Json> root, const std::string& origin,
                                        const ConfigOptions& options) {
  if (!root.ok()) return root.error();
  auto kept = std::make_shared<Kept>();
  kept->root = std::move(*root);
  kept->options = options;
  const Json* object = &kept->root;
  return ConfigReader(origin, std::move(kept), object);
}

Result<ConfigReader> ConfigReader::parse(std::string_view json, const std::string& origin,
                                         const ConfigOptions& options) {
  return keep(parse_json_object(json, origin), origin, options);
}

Result<ConfigReader> ConfigReader::read(const std::string& path, const ConfigOptions& options) {
  return keep(read_json_object(path, kConfigBytesMax), path, options);
}

const ConfigOptions& ConfigReader::options() const { return kept_->options; }
const std::optional<Error>& ConfigReader::error() const { return kept_->error; }
const std::vector<std::string>& ConfigReader::notes() const { return kept_->notes; }

bool ConfigReader::has(std::string_view key) const { return object_->contains(key); }

std::vector<std::string> ConfigReader::keys() const {
  std::vector<std::string> result;
  for (const auto& [key, value] : object_->items()) {
    if (!value.is_null()) result.push_back(key);
  }
  return result;
}

void ConfigReader::refuse(const std::string& what) { keep_error(what, ""); }

void ConfigReader::refuse_unless_forced(const std::string& what) {
  if (kept_->options.force) {
    note("served by --force: " + what);
  } else {
    keep_error(what, " (--force serves it all the same)");
  }
}

void ConfigReader::keep_error(const std::string& what, const char* hint) {
  if (!kept_->error.has_value()) {
    kept_->error = Error{ErrorCode::kInvalid, origin_ + ": " + as_line(what) + hint};
  }
}

void ConfigReader::note(const std::string& what) { kept_->notes.push_back(as_line(what)); }

void ConfigReader::refuse_type(std::string_view key, const char* expected) {
  refuse(std::string(key) + ": " + expected + " is expected");
}

std::int64_t ConfigReader::integer(std::initializer_list<const char*> keys, std::int64_t fallback,
                                   std::int64_t min, std::int64_t max) {
  for (const char* key : keys) {
    const Json* found = find_json(*object_, key);
    if (found == nullptr) continue;
    const auto value = json_integer(*found);
    if (!value.has_value() || *value < min || *value > max) {
      refuse(std::string(key) + ": a whole number in [" + std::to_string(min) + ", " +
             std::to_string(max) + "] is expected");
      return fallback;
    }
    return *value;
  }
  return fallback;
}

double ConfigReader::number(const char* key, double fallback) {
  const Json* found = find_json(*object_, key);
  if (found == nullptr) return fallback;
  if (!found->is_number()) {
    refuse_type(key, "a number");
    return fallback;
  }
  return found->get<double>();
}

float ConfigReader::positive(const char* key, double fallback) {
  const auto value = static_cast<float>(number(key, fallback));
  if (value > 0.0F && std::isfinite(value)) return value;
  refuse(std::string(key) + ": a number above 0 is expected");
  return static_cast<float>(fallback);
}

bool ConfigReader::boolean(const char* key, bool fallback) {
  const auto value = find_json_bool(*object_, key);
  if (!value.has_value() && find_json(*object_, key) != nullptr) refuse_type(key, "true or false");
  return value.value_or(fallback);
}

std::string ConfigReader::text(const char* key, const std::string& fallback) {
  const std::string* value = find_json_text(*object_, key);
  if (value == nullptr && find_json(*object_, key) != nullptr) refuse_type(key, "a string");
  return value != nullptr ? *value : fallback;
}

std::vector<std::string> ConfigReader::texts(const char* key) {
  std::vector<std::string> result;
  const Json* found = find_json(*object_, key);
  if (found == nullptr) return result;
  bool right = found->is_array();
  for (const Json& entry : right ? *found : Json::array()) {
    const auto* value = entry.get_ptr<const std::string*>();
    right = right && value != nullptr;
    result.push_back(value != nullptr ? *value : "");
  }
  if (!right) refuse_type(key, "a list of strings");
  return result;
}

std::vector<double> ConfigReader::numbers(const char* key) {
  std::vector<double> result;
  const Json* found = find_json(*object_, key);
  if (found == nullptr) return result;
  bool right = found->is_array();
  for (const Json& entry : right ? *found : Json::array()) {
    right = right && entry.is_number();
    result.push_back(entry.is_number() ? entry.get<double>() : 0.0);
  }
  if (!right) refuse_type(key, "a list of numbers");
  return result;
}

std::optional<ConfigReader> ConfigReader::object(const std::string& key) {
  const Json* found = find_json(*object_, key);
  if (found == nullptr) return std::nullopt;
  if (!found->is_object()) {
    refuse_type(key, "an object");
    return std::nullopt;
  }
  return ConfigReader(origin_ + ": " + key, kept_, found);
}

bool ConfigReader::is_object(const std::string& key) const {
  const Json* found = find_json(*object_, key);
  return found != nullptr && found->is_object();
}

bool ConfigReader::is_text(const std::string& key) const {
  return find_json_text(*object_, key) != nullptr;
}

const Json* ConfigReader::value(const std::string& key) const { return find_json(*object_, key); }

bool ConfigReader::is_set(const std::string& key) const { return value(key) != nullptr; }

bool ConfigReader::equals(const ConfigReader& other) const { return *object_ == *other.object_; }

std::optional<std::vector<TokenId>> ConfigReader::token_ids(const char* key) {
  const Json* found = find_json(*object_, key);
  if (found == nullptr) return std::nullopt;
  std::vector<TokenId> ids;
  const auto take = [&](const Json& entry) {
    const auto id = json_integer(entry);
    if (!id.has_value() || *id < -1 || *id > INT32_MAX) {
      refuse_type(key, "a token id or a list of token ids");
    } else if (*id >= 0) {  // -1 is how some write "none"
      ids.push_back(static_cast<TokenId>(*id));
    }
  };
  if (found->is_array()) {
    for (const Json& entry : *found) take(entry);
  } else {
    take(*found);
  }
  return ids;
}

}  // namespace lmtp::model
