#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lmtp::tokenizer {

// Decodes padded base64; empty if it is invalid.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace lmtp::tokenizer
