// Reads JSON files of megabytes by simdjson; for small ones see lmtp/base/json.h.
#pragma once

#include <simdjson.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "lmtp/base/result.h"

namespace lmtp::tokenizer {

inline constexpr std::size_t kFileBytesMax = std::size_t{256} << 20;

// Whether there is a file of that name.
bool file_exists(const std::string& path);

// Elements live as long as the JsonFile.
class JsonFile {
 public:
  // The root, which must be an object. The error names the file.
  Result<simdjson::dom::object> read(const std::string& path);

 private:
  simdjson::padded_string text_;
  simdjson::dom::parser parser_;
};

// The contents of a text file. The error names the file.
Result<std::string> read_text_file(const std::string& path);

// Values of optional keys; null and values of other types count as missing.
bool bool_or(const simdjson::dom::object& object, const char* key, bool fallback);
std::size_t size_or(const simdjson::dom::object& object, const char* key, std::size_t fallback);
std::string_view string_or(const simdjson::dom::object& object, const char* key,
                           std::string_view fallback);

}  // namespace lmtp::tokenizer
