// ConfigReader: typed look-ups in a JSON object, with defaults. Keeps the first error.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/json.h"
#include "lmtp/base/result.h"
#include "lmtp/model/model_config.h"

namespace lmtp::model {

class ConfigReader {
 public:
  // `origin` names the text in errors.
  static Result<ConfigReader> parse(std::string_view json, const std::string& origin,
                                    const ConfigOptions& options = {});
  static Result<ConfigReader> read(const std::string& path, const ConfigOptions& options = {});

  const ConfigOptions& options() const;

  // Whether the key is present, be its value null.
  bool has(std::string_view key) const;
  // The keys whose values are not null.
  std::vector<std::string> keys() const;

  // A key that is absent or null gives the default. Several keys are alternative names.
  std::int64_t integer(std::initializer_list<const char*> keys, std::int64_t fallback,
                       std::int64_t min, std::int64_t max);
  double number(const char* key, double fallback);
  // The same as a float; one that is not above 0, or beyond what a float holds, is refused.
  float positive(const char* key, double fallback);
  bool boolean(const char* key, bool fallback);
  std::string text(const char* key, const std::string& fallback);
  // A list of strings; of numbers. Empty where the key is absent or null.
  std::vector<std::string> texts(const char* key);
  std::vector<double> numbers(const char* key);
  // A nested object, which shares this one's error and notes; empty if the key is absent or null.
  std::optional<ConfigReader> object(const std::string& key);
  bool is_object(const std::string& key) const;
  bool is_text(const std::string& key) const;
  // The value of any type; null where the key is absent or null. Lives as long as this.
  const Json* value(const std::string& key) const;
  // Whether the key is there, and not null.
  bool is_set(const std::string& key) const;
  // Whether both JSON objects are equal.
  bool equals(const ConfigReader& other) const;
  // A number or a list of numbers; no value where the key is absent or null.
  std::optional<std::vector<TokenId>> token_ids(const char* key);

  // Keeps `what` as the error, unless there is one already.
  void refuse(const std::string& what);
  // For settings that would not be served as the file means them: refuse(), or with options().force
  // note().
  void refuse_unless_forced(const std::string& what);
  // A note for the user about how this file is read.
  void note(const std::string& what);

  const std::optional<Error>& error() const;
  const std::vector<std::string>& notes() const;

 private:
  struct Kept;

  ConfigReader(std::string origin, std::shared_ptr<Kept> kept, const Json* object);
  static Result<ConfigReader> keep(Result<Json> root, const std::string& origin,
                                   const ConfigOptions& options);
  void keep_error(const std::string& what, const char* hint);
  void refuse_type(std::string_view key, const char* expected);

  std::string origin_;
  std::shared_ptr<Kept> kept_;
  const Json* object_;  // in kept_'s
};

}  // namespace lmtp::model
