#include "json_scan.h"

#include <algorithm>
#include <cstdint>

#include "lmtp/protocol/codec.h"

namespace lmtp::protocol {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

std::size_t skip_blanks(std::string_view text, std::size_t pos) {
  while (pos < text.size() && is_blank(text[pos])) ++pos;
  return pos;
}

// The position after the string whose opening quote is at `pos`: of a short one, as keys are.
std::size_t skip_string(std::string_view text, std::size_t pos) {
  for (++pos; pos < text.size(); ++pos) {
    if (text[pos] == '"') return pos + 1;
    if (text[pos] == '\\') ++pos;
  }
  return text.size();
}

// The same for one that may be long. A quote is searched again only when the last one has been
// passed, so that many escapes cost no more than their length.
std::size_t skip_long_string(std::string_view text, std::size_t pos) {
  std::size_t quote = pos;
  for (++pos; pos < text.size();) {
    if (quote < pos) quote = std::min(text.find('"', pos), text.size());
    const std::size_t escape = text.substr(pos, quote - pos).find('\\');
    if (escape == std::string_view::npos) return std::min(quote + 1, text.size());
    pos += escape + 2;
  }
  return text.size();
}

// 1 for a bracket, a brace and a quote, else 0. In ASCII, brackets and braces differ by one bit.
// Byte-wide and branch-free, so that the compiler vectorizes a loop over it.
std::uint8_t shapes(char c) {
  const auto byte = static_cast<std::uint8_t>(c);
  const auto brace = static_cast<std::uint8_t>(byte | 0x20U);
  return static_cast<std::uint8_t>(static_cast<std::uint8_t>(brace == '{') |
                                   static_cast<std::uint8_t>(brace == '}') |
                                   static_cast<std::uint8_t>(byte == '"'));
}

// The position of the next of these. Long arrays of numbers have none: they are skipped in blocks.
std::size_t next_shape(std::string_view text, std::size_t pos) {
  constexpr std::size_t kBlockBytes = 64;
  const auto walk_to = [&](std::size_t end) {
    while (pos < end && shapes(text[pos]) == 0) ++pos;
    return pos < end;
  };
  if (walk_to(std::min(text.size(), pos + kBlockBytes / 2))) return pos;
  while (text.size() - pos >= kBlockBytes) {
    std::uint8_t any = 0;
    for (std::size_t i = 0; i < kBlockBytes; ++i) any |= shapes(text[pos + i]);
    if (any != 0) break;
    pos += kBlockBytes;
  }
  walk_to(text.size());
  return pos;
}

std::size_t skip_container(std::string_view text, std::size_t pos) {
  std::size_t depth = 0;
  while ((pos = next_shape(text, pos)) < text.size()) {
    const char c = text[pos];
    if (c == '"') {
      pos = skip_string(text, pos);
      continue;
    }
    ++pos;
    if (c == '{' || c == '[') ++depth;
    if ((c == '}' || c == ']') && --depth == 0) return pos;
  }
  return text.size();
}

}  // namespace

std::size_t skip_value(std::string_view text, std::size_t pos) {
  if (pos >= text.size()) return text.size();
  if (text[pos] == '"') return skip_long_string(text, pos);
  if (text[pos] == '{' || text[pos] == '[') return skip_container(text, pos);
  while (pos < text.size() && !is_blank(text[pos]) && text[pos] != ',' && text[pos] != '}' &&
         text[pos] != ']') {
    ++pos;
  }
  return pos;
}

bool is_nested(std::string_view array) {
  return array.find_first_of("\"[{", 1) != std::string_view::npos;
}

std::size_t count_commas(std::string_view container) {
  std::size_t count = 0;
  for (std::size_t pos = 0; pos < container.size();) {
    count += container[pos] == ',' ? 1 : 0;
    pos = container[pos] == '"' ? skip_long_string(container, pos) : pos + 1;
  }
  return count;
}

ObjectScanner::ObjectScanner(std::string_view text) : text_(text) {
  pos_ = skip_blanks(text_, 0);
  if (pos_ < text_.size() && text_[pos_] == '{') {
    ++pos_;
  } else {
    pos_ = text_.size();
  }
}

bool ObjectScanner::next() {
  pos_ = skip_blanks(text_, pos_);
  if (!first_ && pos_ < text_.size() && text_[pos_] == ',') pos_ = skip_blanks(text_, pos_ + 1);
  first_ = false;
  if (pos_ >= text_.size() || text_[pos_] != '"') return false;
  const std::size_t key_end = skip_string(text_, pos_);
  if (key_end >= text_.size()) return false;
  key_ = text_.substr(pos_ + 1, key_end - pos_ - 2);
  pos_ = skip_blanks(text_, key_end);
  if (pos_ >= text_.size() || text_[pos_] != ':') return false;
  value_begin_ = skip_blanks(text_, pos_ + 1);
  pos_ = value_begin_;
  return value_begin_ < text_.size();
}

std::string_view ObjectScanner::skip_value() {
  pos_ = protocol::skip_value(text_, value_begin_);
  return text_.substr(value_begin_, pos_ - value_begin_);
}

std::optional<std::string_view> find_raw_field(std::string_view text, std::string_view key) {
  ObjectScanner scanner(text);
  while (scanner.next()) {
    const std::string_view value = scanner.skip_value();
    if (scanner.key() == key) return value;
  }
  return std::nullopt;
}

std::vector<std::string_view> split_raw_array(std::string_view text) {
  std::vector<std::string_view> values;
  std::size_t pos = skip_blanks(text, 0);
  if (pos >= text.size() || text[pos] != '[') return values;
  pos = skip_blanks(text, pos + 1);
  while (pos < text.size() && text[pos] != ']') {
    const std::size_t end = skip_value(text, pos);
    if (end == pos) break;  // not a value: invalid JSON
    values.push_back(text.substr(pos, end - pos));
    pos = skip_blanks(text, end);
    if (pos < text.size() && text[pos] == ',') pos = skip_blanks(text, pos + 1);
  }
  return values;
}

}  // namespace lmtp::protocol
