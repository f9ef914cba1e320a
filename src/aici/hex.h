// Bytes as hexadecimal digits. Pure functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lmtp::aici {

std::string to_hex(std::string_view bytes);
// Empty where `text` is not pairs of digits.
std::optional<std::string> from_hex(std::string_view text);
bool is_hex(std::string_view text);
// SHA-256, in hex.
std::string sha256_hex(std::string_view bytes);

}  // namespace lmtp::aici
