#include "common/json_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>

namespace lmtp::tools {
namespace {

constexpr std::string_view kSpaces = " \t\r\n";

// Walks over one JSON value and tells what it meets; each call is false where the text is not JSON.
class Walker {
 public:
  enum class Kind { kScalar, kString, kKey, kBegin, kEnd, kSeparator };
  // `text` is the scalar, the string or key with its quotes, or one of [ ] { } and the comma.
  using Visit = std::function<void(Kind kind, std::string_view text, int depth)>;

  Walker(std::string_view json, const Visit& visit) : json_(json), visit_(visit) {}

  bool walk() {
    const bool whole = value(0);
    skip_spaces();
    return whole && pos_ == json_.size();
  }

 private:
  bool value(int depth) {
    skip_spaces();
    if (depth > kJsonDepthMax || pos_ == json_.size()) return false;
    switch (json_[pos_]) {
      case '{':
        return container('}', depth);
      case '[':
        return container(']', depth);
      case '"':
        return string(Kind::kString, depth);
      default:
        return scalar(depth);
    }
  }

  bool container(char close, int depth) {
    visit_(Kind::kBegin, json_.substr(pos_, 1), depth);
    ++pos_;
    skip_spaces();
    for (bool first = true; !at(close); first = false) {
      if (!first) {
        if (!at(',')) return false;
        visit_(Kind::kSeparator, json_.substr(pos_, 1), depth + 1);
        ++pos_;
      }
      skip_spaces();
      if (close == '}' && !key(depth + 1)) return false;
      if (!value(depth + 1)) return false;
      skip_spaces();
    }
    visit_(Kind::kEnd, json_.substr(pos_, 1), depth);
    ++pos_;
    return true;
  }

  bool key(int depth) {
    if (!at('"') || !string(Kind::kKey, depth)) return false;
    skip_spaces();
    if (!at(':')) return false;
    ++pos_;
    return true;
  }

  bool string(Kind kind, int depth) {
    const std::size_t begin = pos_++;
    while (pos_ < json_.size() && json_[pos_] != '"') pos_ += json_[pos_] == '\\' ? 2 : 1;
    if (pos_ >= json_.size()) return false;
    ++pos_;
    visit_(kind, json_.substr(begin, pos_ - begin), depth);
    return true;
  }

  bool scalar(int depth) {
    const std::size_t end = std::min(json_.find_first_of(",]}: \t\r\n\"[{", pos_), json_.size());
    if (end == pos_) return false;
    visit_(Kind::kScalar, json_.substr(pos_, end - pos_), depth);
    pos_ = end;
    return true;
  }

  bool at(char c) const { return pos_ < json_.size() && json_[pos_] == c; }
  void skip_spaces() { pos_ = std::min(json_.find_first_not_of(kSpaces, pos_), json_.size()); }

  const std::string_view json_;
  const Visit& visit_;
  std::size_t pos_ = 0;
};

using Kind = Walker::Kind;

void append_utf8(char32_t c, std::string& out) {
  const auto byte = [&out](char32_t value) { out.push_back(static_cast<char>(value)); };
  if (c < 0x80) {
    byte(c);
  } else if (c < 0x800) {
    byte(0xC0 | c >> 6);
    byte(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    byte(0xE0 | c >> 12);
    byte(0x80 | (c >> 6 & 0x3F));
    byte(0x80 | (c & 0x3F));
  } else {
    byte(0xF0 | c >> 18);
    byte(0x80 | (c >> 12 & 0x3F));
    byte(0x80 | (c >> 6 & 0x3F));
    byte(0x80 | (c & 0x3F));
  }
}

// Four hexadecimal digits at `pos`; 0xFFFD where they are none.
char32_t hex4(std::string_view text, std::size_t pos) {
  unsigned value = 0xFFFD;
  if (pos + 4 <= text.size()) std::from_chars(text.data() + pos, text.data() + pos + 4, value, 16);
  return value;
}

// Appends the character of the \u at `pos` (of the u); moves `pos` to its last digit.
void append_unicode_escape(std::string_view text, std::size_t& pos, std::string& out) {
  char32_t c = hex4(text, pos + 1);
  pos += 4;
  if (c >= 0xD800 && c < 0xDC00 && text.substr(pos + 1, 2) == "\\u") {
    const char32_t low = hex4(text, pos + 3);
    if (low >= 0xDC00 && low < 0xE000) {
      c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
      pos += 6;
    }
  }
  append_utf8(c >= 0xD800 && c < 0xE000 ? U'\uFFFD' : c, out);
}

// `quoted` as Walker gives it.
std::string unescaped(std::string_view quoted) {
  const std::string_view text = quoted.substr(1, quoted.size() - 2);
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out.push_back(text[i]);
      continue;
    }
    constexpr std::string_view kShort = "bfnrt";
    constexpr std::string_view kMeant = "\b\f\n\r\t";
    const char c = text[++i];
    if (c == 'u') {
      append_unicode_escape(text, i, out);
    } else {
      const std::size_t known = kShort.find(c);
      out.push_back(known == std::string_view::npos ? c : kMeant[known]);
    }
  }
  return out;
}

// A string as Python's repr quotes it.
void append_python_string(const std::string& text, std::string& out) {
  const bool single = text.find('\'') == std::string::npos || text.find('"') != std::string::npos;
  const char quote = single ? '\'' : '"';
  out.push_back(quote);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == quote || c == '\\') {
      out.append({'\\', c});
    } else if (c == '\n') {
      out.append("\\n");
    } else if (c == '\r') {
      out.append("\\r");
    } else if (c == '\t') {
      out.append("\\t");
    } else if (byte < 0x20 || byte == 0x7F) {
      char hex[8];
      std::snprintf(hex, sizeof(hex), "\\x%02x", byte);
      out.append(hex);
    } else {
      out.push_back(c);
    }
  }
  out.push_back(quote);
}

// A float as Python's repr writes it: shortest digits, an exponent below 1e-4 and from 1e16 on.
std::string python_float(double value) {
  char text[40];
  const bool fixed = value == 0 || (std::abs(value) >= 1e-4 && std::abs(value) < 1e16);
  const auto format = fixed ? std::chars_format::fixed : std::chars_format::scientific;
  const auto [end, error] = std::to_chars(text, text + sizeof(text), value, format);
  std::string out(text, end);
  if (fixed && out.find('.') == std::string::npos) out += ".0";
  return out;
}

std::string python_scalar(std::string_view text) {
  if (text == "null") return "None";
  if (text == "true") return "True";
  if (text == "false") return "False";
  if (text.find_first_of(".eE") == std::string_view::npos) return std::string(text);
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? python_float(value) : std::string(text);
}

// Calls `visit` for each element or member of the outermost container: its key's quoted text (empty
// in an array) and its value's text. False where `json` is neither array nor object.
bool for_each_child(
    std::string_view json, char open,
    const std::function<void(std::string_view key, std::string_view value)>& visit) {
  std::string_view key;
  const char* begin = nullptr;
  bool right_kind = false;
  const Walker::Visit walk = [&](Kind kind, std::string_view text, int depth) {
    if (depth == 0 && kind == Kind::kBegin) right_kind = text[0] == open;
    if (depth != 1 || !right_kind) return;
    if (kind == Kind::kKey) {
      key = text;
    } else if (kind == Kind::kBegin) {
      begin = text.data();
    } else if (kind == Kind::kEnd) {
      visit(key, {begin, static_cast<std::size_t>(text.data() + 1 - begin)});
    } else if (kind != Kind::kSeparator) {
      visit(key, text);
    }
  };
  return Walker(json, walk).walk() && right_kind;
}

}  // namespace

std::string python_repr(std::string_view json) {
  std::string out;
  const Walker::Visit visit = [&out](Kind kind, std::string_view text, int) {
    switch (kind) {
      case Kind::kScalar:
        out += python_scalar(text);
        break;
      case Kind::kString:
      case Kind::kKey:
        append_python_string(unescaped(text), out);
        if (kind == Kind::kKey) out += ": ";
        break;
      case Kind::kSeparator:
        out += ", ";
        break;
      default:
        out += text;
    }
  };
  return Walker(json, visit).walk() ? out : std::string(json);
}

std::string indented(std::string_view json) {
  std::string out;
  bool just_begun = false;
  const auto new_line = [&out](int depth) {
    out.append("\n").append(2 * static_cast<std::size_t>(depth), ' ');
  };
  const Walker::Visit visit = [&](Kind kind, std::string_view text, int depth) {
    if (kind == Kind::kEnd) {
      if (!just_begun) new_line(depth);
    } else if (just_begun) {
      new_line(depth);
    }
    just_begun = kind == Kind::kBegin;
    out += text;
    if (kind == Kind::kKey) out += ": ";
    if (kind == Kind::kSeparator) new_line(depth);
  };
  return Walker(json, visit).walk() ? out : std::string(json);
}

std::optional<std::string> json_field(std::string_view json, std::string_view key) {
  std::optional<std::string> found;
  const bool whole =
      for_each_child(json, '{', [&](std::string_view quoted, std::string_view value) {
        if (unescaped(quoted) == key) found = value;
      });
  return whole ? found : std::nullopt;
}

std::optional<std::string> json_string(std::string_view json) {
  if (json.size() < 2 || json.front() != '"' || json.back() != '"') return std::nullopt;
  return unescaped(json);
}

std::string json_quoted(std::string_view text) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (byte < 0x20 || byte == 0x7F) {
      out += {'\\', 'u', '0', '0', kDigits[byte >> 4], kDigits[byte & 0xF]};
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::optional<std::int64_t> json_integer(std::string_view json) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(json.data(), json.data() + json.size(), value);
  if (error != std::errc() || end != json.data() + json.size()) return std::nullopt;
  return value;
}

std::optional<std::vector<std::string>> json_elements(std::string_view json) {
  std::vector<std::string> elements;
  const bool whole = for_each_child(
      json, '[', [&](std::string_view, std::string_view value) { elements.emplace_back(value); });
  if (!whole) return std::nullopt;
  return elements;
}

Result<std::vector<TokenId>> parse_ids(std::string_view json) {
  const auto elements = json_elements(json);
  if (!elements)
    return Error{ErrorCode::kInvalid, "not a JSON array of token ids like [464, 3290]"};
  std::vector<TokenId> ids;
  ids.reserve(elements->size());
  for (const std::string& element : *elements) {
    const auto id = json_integer(element);
    if (!id || *id < 0 || *id > std::numeric_limits<TokenId>::max()) {
      return Error{ErrorCode::kInvalid, "'" + element + "' is not a token id"};
    }
    ids.push_back(static_cast<TokenId>(*id));
  }
  return ids;
}

}  // namespace lmtp::tools
