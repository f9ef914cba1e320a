#include "text.h"

#include <algorithm>
#include <array>

namespace lmtp::jinja {
namespace {

// Where a character of UTF-8 ends that begins at `pos`; npos: what is there is none.
std::size_t end_of_character(std::string_view utf8, std::size_t pos) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(utf8[i]); };
  const unsigned lead = byte(pos);
  if (lead < 0x80) return pos + 1;
  const std::size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || pos + size > utf8.size()) return std::string_view::npos;
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(pos + i) & 0xC0) != 0x80) return std::string_view::npos;
  }
  return pos + size;
}

}  // namespace

Text text_of(std::string_view utf8, char32_t mark) {
  Text text;
  text.reserve(utf8.size());
  for (std::size_t pos = 0; pos < utf8.size();) {
    const std::size_t end = end_of_character(utf8, pos);
    if (end == std::string_view::npos) {
      text += U'\uFFFD' | mark;
      ++pos;
      continue;
    }
    const auto lead = static_cast<unsigned char>(utf8[pos]);
    constexpr std::array<unsigned, 5> kLeadBits = {0, 0x7F, 0x1F, 0x0F, 0x07};
    char32_t c = lead & kLeadBits[end - pos];
    while (++pos < end) c = c << 6 | (static_cast<unsigned char>(utf8[pos]) & 0x3F);
    text += c | mark;
  }
  return text;
}

std::string utf8_of(TextView text) {
  std::string utf8;
  utf8.reserve(text.size());
  const auto append = [&](char32_t bits) { utf8 += static_cast<char>(bits); };
  const auto tail = [&](char32_t c, int shift) { append(0x80 | (c >> shift & 0x3F)); };
  for (const char32_t marked : text) {
    char32_t c = code_point(marked);
    if ((c >= 0xD800 && c < 0xE000) || c > 0x10FFFF) c = U'\uFFFD';
    if (c < 0x80) {
      append(c);
    } else if (c < 0x800) {
      append(0xC0 | c >> 6);
      tail(c, 0);
    } else if (c < 0x10000) {
      append(0xE0 | c >> 12);
      tail(c, 6);
      tail(c, 0);
    } else {
      append(0xF0 | c >> 18);
      tail(c, 12);
      tail(c, 6);
      tail(c, 0);
    }
  }
  return utf8;
}

TextView strip(TextView text, Ends ends, std::optional<TextView> set) {
  const auto goes = [&](char32_t c) {
    return set ? set->find(c) != TextView::npos : is_space(code_point(c));
  };
  while (ends != Ends::kRight && !text.empty() && goes(text.front())) text.remove_prefix(1);
  while (ends != Ends::kLeft && !text.empty() && goes(text.back())) text.remove_suffix(1);
  return text;
}

std::vector<TextView> split(TextView text, std::size_t num_max, bool from_right) {
  std::vector<TextView> parts;
  const auto space = [](char32_t c) { return is_space(code_point(c)); };
  const Ends outer = from_right ? Ends::kRight : Ends::kLeft;
  for (text = strip(text, outer); !text.empty(); text = strip(text, outer)) {
    if (parts.size() == num_max) {  // the rest keeps the white space at its other end
      parts.push_back(text);
      break;
    }
    std::size_t size = 0;
    const auto at = [&] { return from_right ? text[text.size() - 1 - size] : text[size]; };
    while (size < text.size() && !space(at())) ++size;
    if (from_right) {
      parts.push_back(text.substr(text.size() - size));
      text.remove_suffix(size);
    } else {
      parts.push_back(text.substr(0, size));
      text.remove_prefix(size);
    }
  }
  if (from_right) std::ranges::reverse(parts);
  return parts;
}

std::vector<TextView> split(TextView text, TextView separator, std::size_t num_max,
                            bool from_right) {
  std::vector<TextView> parts;
  while (parts.size() < num_max) {
    const std::size_t at = from_right ? text.rfind(separator) : text.find(separator);
    if (at == TextView::npos) break;
    const TextView left = text.substr(0, at);
    const TextView right = text.substr(at + separator.size());
    parts.push_back(from_right ? right : left);
    text = from_right ? left : right;
  }
  parts.push_back(text);
  if (from_right) std::ranges::reverse(parts);
  return parts;
}

std::vector<TextView> split_lines(TextView text, bool keep_ends) {
  constexpr TextView kEnds = U"\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029";
  std::vector<TextView> lines;
  while (!text.empty()) {
    const std::size_t at = text.find_first_of(kEnds);
    if (at == TextView::npos) {
      lines.push_back(text);
      break;
    }
    const bool two = text.substr(at, 2) == U"\r\n";
    const std::size_t end = at + (two ? 2 : 1);
    lines.push_back(text.substr(0, keep_ends ? end : at));
    text.remove_prefix(end);
  }
  return lines;
}

Text replace(TextView text, TextView old, TextView by, std::size_t num_max) {
  Text out;
  if (old.empty()) {
    for (std::size_t i = 0; i <= text.size(); ++i) {
      if (i < num_max) out += by;
      if (i < text.size()) out += text[i];
    }
    return out;
  }
  while (num_max-- > 0) {
    const std::size_t at = text.find(old);
    if (at == TextView::npos) break;
    out.append(text.substr(0, at)).append(by);
    text.remove_prefix(at + old.size());
  }
  return out.append(text);
}

std::size_t count(TextView text, TextView part) {
  if (part.empty()) return text.size() + 1;
  std::size_t num = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != TextView::npos; at += part.size()) ++num;
  return num;
}

namespace {

// \xNN, \uNNNN or \UNNNNNNNN, which keeps the mark of the character that it stands for.
void append_escape(char32_t kind, char32_t c, char32_t mark, Text& out) {
  constexpr TextView kDigits = U"0123456789abcdef";
  out += {U'\\' | mark, kind | mark};
  for (int shift = kind == U'x' ? 4 : kind == U'u' ? 12 : 28; shift >= 0; shift -= 4) {
    out += kDigits[c >> shift & 15] | mark;
  }
}

}  // namespace

Text repr(TextView text) {
  const bool has_single = text.find(U'\'') != TextView::npos;
  const char32_t quote = has_single && text.find(U'"') == TextView::npos ? U'"' : U'\'';
  Text out(1, quote);
  for (const char32_t marked : text) {
    const char32_t c = code_point(marked);
    const char32_t mark = marked & kInput;
    constexpr TextView kShort = U"\n\r\t\\";
    if (const std::size_t at = kShort.find(c); at != TextView::npos || c == quote) {
      out += {U'\\' | mark, (c == quote ? quote : U"nrt\\"[at]) | mark};
    } else if (is_printable(c)) {
      out += marked;
    } else {
      append_escape(c < 0x100 ? U'x' : c < 0x10000 ? U'u' : U'U', c, mark, out);
    }
  }
  return out += quote;
}

Text json_string(TextView text, bool ascii) {
  Text out(1, U'"');
  for (const char32_t marked : text) {
    const char32_t c = code_point(marked);
    const char32_t mark = marked & kInput;
    constexpr TextView kShort = U"\"\\\n\r\t\f\b";
    if (const std::size_t at = kShort.find(c); at != TextView::npos) {
      out += {U'\\' | mark, U"\"\\nrtfb"[at] | mark};
    } else if (c >= 0x20 && (c < 0x80 || !ascii)) {
      out += marked;
    } else if (c < 0x10000) {
      append_escape(U'u', c, mark, out);
    } else {
      append_escape(U'u', 0xD800 + ((c - 0x10000) >> 10), mark, out);
      append_escape(U'u', 0xDC00 + ((c - 0x10000) & 0x3FF), mark, out);
    }
  }
  return out += U'"';
}

Text escaped_html(TextView text) {
  Text out;
  for (const char32_t marked : text) {
    constexpr TextView kSpecial = U"&<>\"'";
    constexpr std::array<const char*, 5> kNames = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
    const std::size_t at = kSpecial.find(marked);
    if (at == TextView::npos) {
      out += marked;
    } else {
      out += text_of(kNames[at], marked & kInput);
    }
  }
  return out;
}

}  // namespace lmtp::jinja
