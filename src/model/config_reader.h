// ConfigReader: typed look-ups in a JSON object, with defaults. The first thing wrong is kept.
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

  // Is the key there, null or not?
  bool has(std::string_view key) const;
  // The keys whose values are not null.
  std::vector<std::string> keys() const;

  // A key that is absent or null gives the default. Several keys are names of the same thing.
  std::int64_t integer(std::initializer_list<const char*> keys, std::int64_t otherwise,
                       std::int64_t min, std::int64_t max);
  double number(const char* key, double otherwise);
  bool boolean(const char* key, bool otherwise);
  std::string text(const char* key, const std::string& otherwise);
  // A list of strings; of numbers. Empty where the key is absent or null.
  std::vector<std::string> texts(const char* key);
  std::vector<double> numbers(const char* key);
  // An object inside this one, which shares what is kept of faults; none where the key is absent or
  // null.
  std::optional<ConfigReader> object(const std::string& key);
  bool is_object(const std::string& key) const;
  // Do both hold the same?
  bool equals(const ConfigReader& other) const;
  // A number or a list of numbers; no value where the key is absent or null.
  std::optional<std::vector<TokenId>> token_ids(const char* key);

  // Keeps `what` as the reason why this file is refused, unless there is one already.
  void refuse(const std::string& what);
  // Refuses what would not be served as the file means it; with options().force a note will do.
  void doubt(const std::string& what);
  // What a user should know of how this file is read.
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
