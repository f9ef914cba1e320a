#include "json_file.h"

#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

namespace lmtp::tokenizer {

namespace fs = std::filesystem;

bool file_exists(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

Result<std::string> read_text_file(const std::string& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error) return Error{errno_code(error.value()), path + ": " + error.message()};
  if (size > kFileBytesMax) {
    return Error{ErrorCode::kInvalid, path + ": larger than a tokenizer's file can be"};
  }
  std::string text(size, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(text.data(), static_cast<std::streamsize>(size))) {
    return Error{ErrorCode::kUnavailable, path + ": cannot be read"};
  }
  return text;
}

Result<simdjson::dom::object> JsonFile::read(const std::string& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error) return Error{errno_code(error.value()), path + ": " + error.message()};
  if (size > kFileBytesMax) {
    return Error{ErrorCode::kInvalid, path + ": larger than a tokenizer's file can be"};
  }
  if (const auto code = simdjson::padded_string::load(path).get(text_)) {
    return Error{ErrorCode::kInvalid, path + ": " + simdjson::error_message(code)};
  }
  simdjson::dom::object root;
  if (const auto code = parser_.parse(text_).get_object().get(root)) {
    return Error{ErrorCode::kInvalid,
                 path + ": not a JSON object (" + simdjson::error_message(code) + ")"};
  }
  return root;
}

std::size_t size_or(const simdjson::dom::object& object, const char* key, std::size_t fallback) {
  std::uint64_t value = 0;
  return object[key].get_uint64().get(value) == simdjson::SUCCESS ? value : fallback;
}

bool bool_or(const simdjson::dom::object& object, const char* key, bool fallback) {
  bool value = false;
  return object[key].get_bool().get(value) == simdjson::SUCCESS ? value : fallback;
}

std::string_view string_or(const simdjson::dom::object& object, const char* key,
                           std::string_view fallback) {
  std::string_view value;
  return object[key].get_string().get(value) == simdjson::SUCCESS ? value : fallback;
}

}  // namespace lmtp::tokenizer
