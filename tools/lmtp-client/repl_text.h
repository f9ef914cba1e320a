// What lmtp-client reads and prints, as text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lmtp::tools {

// Without the spaces at both ends.
std::string_view trimmed(std::string_view text);

// Takes the first word of `words` and the spaces behind it.
std::string_view take_word(std::string_view& words);

// The texts between |||, each without one space at its end; those at its beginning belong to it.
std::vector<std::string> separated(std::string_view words);

// On standard output, at once.
void print(std::string_view text);

// Without control characters: what a server says may be any text.
std::string one_line(std::string text);

// Broken between words for the terminal that `fd` is; as it is for anything else.
std::string wrapped(const std::string& text, int fd);

// A token's text in quotes, so that spaces and line ends are visible.
std::string quoted_token(std::string_view bytes);

}  // namespace lmtp::tools
