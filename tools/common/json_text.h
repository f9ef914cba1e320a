// JSON that a server sent, looked at and shown as text. For what a person reads; messages are
// parsed by lmtp/protocol/codec.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"

namespace lmtp::tools {

inline constexpr int kJsonDepthMax = 64;

// The JSON as Python prints the same value: {'token': 5, 'finish_reason': None}. The text itself
// where it is not JSON.
std::string python_repr(std::string_view json);

// The JSON over several lines, each level two spaces further in. The text itself where it is not
// JSON.
std::string indented(std::string_view json);

// The value of `key` in the object `json`, as text; nothing where there is none.
std::optional<std::string> json_field(std::string_view json, std::string_view key);

// A JSON string's characters; nothing where `json` is no string.
std::optional<std::string> json_string(std::string_view json);
// The other way. REQUIRES: valid UTF-8.
std::string json_quoted(std::string_view text);
std::optional<std::int64_t> json_integer(std::string_view json);

// The texts of an array's elements; nothing where `json` is no array.
std::optional<std::vector<std::string>> json_elements(std::string_view json);

// "[1, 2, 3]" as ids. The error says what is wrong.
Result<std::vector<TokenId>> parse_ids(std::string_view json);

}  // namespace lmtp::tools
