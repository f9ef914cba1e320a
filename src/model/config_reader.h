// ConfigReader: typed look-ups in a JSON object, with defaults. The first thing wrong is kept.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"

namespace lmtp::model {

// Largest JSON file that is read: config.json and the index of a sharded checkpoint.
inline constexpr std::int64_t kJsonBytesMax = std::int64_t{64} << 20;

class ConfigReader {
 public:
  // `origin` names the text in errors.
  static Result<ConfigReader> parse(std::string_view json, std::string origin);
  static Result<ConfigReader> read(const std::string& path);

  // Is the key there, null or not?
  bool has(const char* key) const;

  // A key that is absent or null gives the default. Several keys are names of the same thing.
  std::int64_t integer(std::initializer_list<const char*> keys, std::int64_t otherwise,
                       std::int64_t min, std::int64_t max);
  double number(const char* key, double otherwise);
  bool boolean(const char* key, bool otherwise);
  std::string text(const char* key, const std::string& otherwise);
  // The first string of a list; empty where there is none.
  std::string first_text(const char* key);
  // A list of strings; of numbers. Empty where the key is absent or null.
  std::vector<std::string> texts(const char* key);
  std::vector<double> numbers(const char* key);
  // An object inside this one; none where the key is absent or null. What is wrong in it must be
  // handed on with adopt().
  std::optional<ConfigReader> object(const char* key);
  void adopt(const ConfigReader& inner);
  // A number or a list of numbers; no value where the key is absent or null.
  std::optional<std::vector<TokenId>> token_ids(const char* key);

  // Keeps `what` as the reason why this file is refused, unless there is one already.
  void refuse(const std::string& what);

  const std::optional<Error>& error() const { return error_; }

 private:
  std::optional<simdjson::dom::element> find(const char* key) const;

  std::string origin_;
  std::shared_ptr<simdjson::dom::parser> parser_;  // an inner object lives in the same text
  simdjson::dom::object object_;
  std::optional<Error> error_;
};

}  // namespace lmtp::model
