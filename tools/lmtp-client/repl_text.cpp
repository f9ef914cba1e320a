#include "repl_text.h"

#include <sys/ioctl.h>

#include <algorithm>
#include <cstdio>

#include "lmtp/tokenizer/tokenizer.h"

namespace lmtp::tools {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::string_view take_word(std::string_view& words) {
  const std::size_t end = std::min(words.find(' '), words.size());
  const std::string_view word = words.substr(0, end);
  words = trimmed(words.substr(end));
  return word;
}

std::vector<std::string> separated(std::string_view words) {
  constexpr std::string_view kSeparator = "|||";
  std::vector<std::string> texts;
  for (auto end = words.find(kSeparator); end != std::string_view::npos;
       end = words.find(kSeparator)) {
    const std::string_view text = words.substr(0, end);
    texts.emplace_back(text.ends_with(' ') ? text.substr(0, text.size() - 1) : text);
    words.remove_prefix(end + kSeparator.size());
  }
  texts.emplace_back(words);
  return texts;
}

void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

std::string one_line(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return text;
}

std::string wrapped(const std::string& text, int fd) {
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return text;
  const std::size_t width = size.ws_col;
  std::string out;
  std::size_t column = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    if (column > 0 && column + 1 + (end - at) >= width) {
      out += '\n';
      column = 0;
    } else if (at > 0) {
      out += ' ';
      ++column;
    }
    out.append(text, at, end - at);
    column += end - at;
    at = end + 1;
  }
  return out;
}

std::string quoted_token(std::string_view bytes) {
  tokenizer::StreamDecoder decoder;
  std::string text = decoder.push(bytes);
  text += decoder.finish();
  std::string out = "'";
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else {
      out.push_back(c);
    }
  }
  return out + "'";
}

}  // namespace lmtp::tools
