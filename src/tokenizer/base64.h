#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lmtp::tokenizer {

// The bytes that padded base64 stands for; nothing where it is none.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace lmtp::tokenizer
