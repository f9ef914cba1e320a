#include "config_reader.h"

#include <filesystem>
#include <fstream>
#include <utility>

namespace lmtp::model {

Result<ConfigReader> ConfigReader::parse(std::string_view json, std::string origin) {
  ConfigReader reader;
  reader.origin_ = std::move(origin);
  reader.parser_ = std::make_shared<simdjson::dom::parser>();
  simdjson::dom::element root;
  const simdjson::padded_string padded(json);
  if (const auto code = reader.parser_->parse(padded).get(root); code != simdjson::SUCCESS) {
    return Error{reader.origin_ + ": not JSON: " + simdjson::error_message(code)};
  }
  if (root.get(reader.object_) != simdjson::SUCCESS) {
    return Error{reader.origin_ + ": not a JSON object"};
  }
  return reader;
}

Result<ConfigReader> ConfigReader::read(const std::string& path) {
  std::error_code code;
  const auto size = std::filesystem::file_size(path, code);
  if (code) {
    return Error{path + ": " + code.message()};
  }
  if (size > static_cast<std::uintmax_t>(kJsonBytesMax)) {
    return Error{path + ": larger than " + std::to_string(kJsonBytesMax) + " bytes"};
  }
  std::ifstream file(path, std::ios::binary);
  std::string text(size, '\0');
  if (!file.read(text.data(), static_cast<std::streamsize>(size))) {
    return Error{path + ": cannot be read"};
  }
  return parse(text, path);
}

bool ConfigReader::has(const char* key) const { return object_[key].error() == simdjson::SUCCESS; }

std::optional<simdjson::dom::element> ConfigReader::find(const char* key) const {
  simdjson::dom::element element;
  if (object_[key].get(element) != simdjson::SUCCESS || element.is_null()) {
    return std::nullopt;
  }
  return element;
}

void ConfigReader::refuse(const std::string& what) {
  if (!error_.has_value()) {
    error_ = Error{origin_ + ": " + what};
  }
}

std::int64_t ConfigReader::integer(std::initializer_list<const char*> keys, std::int64_t otherwise,
                                   std::int64_t min, std::int64_t max) {
  for (const char* key : keys) {
    const auto element = find(key);
    if (!element.has_value()) {
      continue;
    }
    std::int64_t value = 0;
    if (element->get(value) != simdjson::SUCCESS || value < min || value > max) {
      refuse(std::string(key) + ": a whole number in [" + std::to_string(min) + ", " +
             std::to_string(max) + "] is expected");
      return otherwise;
    }
    return value;
  }
  return otherwise;
}

double ConfigReader::number(const char* key, double otherwise) {
  const auto element = find(key);
  double value = otherwise;
  if (element.has_value() && element->get(value) != simdjson::SUCCESS) {
    refuse(std::string(key) + ": a number is expected");
  }
  return value;
}

bool ConfigReader::boolean(const char* key, bool otherwise) {
  const auto element = find(key);
  bool value = otherwise;
  if (element.has_value() && element->get(value) != simdjson::SUCCESS) {
    refuse(std::string(key) + ": true or false is expected");
  }
  return value;
}

std::string ConfigReader::text(const char* key, const std::string& otherwise) {
  const auto element = find(key);
  if (!element.has_value()) {
    return otherwise;
  }
  std::string_view value;
  if (element->get(value) != simdjson::SUCCESS) {
    refuse(std::string(key) + ": a string is expected");
  }
  return std::string(value);
}

std::string ConfigReader::first_text(const char* key) {
  const auto element = find(key);
  simdjson::dom::array array;
  if (!element.has_value() || element->get(array) != simdjson::SUCCESS) {
    return {};
  }
  for (const simdjson::dom::element entry : array) {
    std::string_view value;
    if (entry.get(value) == simdjson::SUCCESS) {
      return std::string(value);
    }
  }
  return {};
}

std::vector<std::string> ConfigReader::texts(const char* key) {
  const auto element = find(key);
  std::vector<std::string> result;
  simdjson::dom::array array;
  if (!element.has_value()) {
    return result;
  }
  if (element->get(array) != simdjson::SUCCESS) {
    refuse(std::string(key) + ": a list of strings is expected");
    return result;
  }
  for (const simdjson::dom::element entry : array) {
    std::string_view value;
    if (entry.get(value) != simdjson::SUCCESS) {
      refuse(std::string(key) + ": a list of strings is expected");
    }
    result.emplace_back(value);
  }
  return result;
}

std::vector<double> ConfigReader::numbers(const char* key) {
  const auto element = find(key);
  std::vector<double> result;
  simdjson::dom::array array;
  if (!element.has_value()) {
    return result;
  }
  if (element->get(array) != simdjson::SUCCESS) {
    refuse(std::string(key) + ": a list of numbers is expected");
    return result;
  }
  for (const simdjson::dom::element entry : array) {
    double value = 0.0;
    if (entry.get(value) != simdjson::SUCCESS) {
      refuse(std::string(key) + ": a list of numbers is expected");
    }
    result.push_back(value);
  }
  return result;
}

std::optional<ConfigReader> ConfigReader::object(const char* key) {
  const auto element = find(key);
  ConfigReader inner;
  if (!element.has_value()) {
    return std::nullopt;
  }
  if (element->get(inner.object_) != simdjson::SUCCESS) {
    refuse(std::string(key) + ": an object is expected");
    return std::nullopt;
  }
  inner.origin_ = origin_ + ": " + key;
  inner.parser_ = parser_;
  return inner;
}

void ConfigReader::adopt(const ConfigReader& inner) {
  if (!error_.has_value()) {
    error_ = inner.error_;
  }
}

std::optional<std::vector<TokenId>> ConfigReader::token_ids(const char* key) {
  const auto element = find(key);
  if (!element.has_value()) {
    return std::nullopt;
  }
  std::vector<TokenId> ids;
  const auto take = [&](const simdjson::dom::element& entry) {
    std::int64_t id = 0;
    if (entry.get(id) != simdjson::SUCCESS || id < -1 || id > INT32_MAX) {
      refuse(std::string(key) + ": a token id or a list of token ids is expected");
    } else if (id >= 0) {  // -1 is how some write "none"
      ids.push_back(static_cast<TokenId>(id));
    }
  };
  simdjson::dom::array array;
  if (element->get(array) == simdjson::SUCCESS) {
    for (const simdjson::dom::element entry : array) {
      take(entry);
    }
  } else {
    take(*element);
  }
  return ids;
}

}  // namespace lmtp::model
