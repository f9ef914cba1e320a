#include "lexer.h"

#include <algorithm>
#include <array>
#include <cstdlib>

namespace lmtp::jinja {
namespace {

constexpr bool is_ascii_digit(char32_t c) { return c >= U'0' && c <= U'9'; }

int hex_digit(char32_t c) {
  if (is_ascii_digit(c)) return static_cast<int>(c - U'0');
  const char32_t small = c | 0x20;
  return small >= U'a' && small <= U'z' ? static_cast<int>(small - U'a') + 10 : 99;
}

// \r\n and \r are line ends too; one at the end of the text is left out.
Text with_plain_newlines(Text source) {
  source = replace(replace(source, U"\r\n", U"\n", Text::npos), U"\r", U"\n", Text::npos);
  if (source.ends_with(U'\n')) source.pop_back();
  return source;
}

// Of what stands between the quotes of a literal.
class Unescaper {
 public:
  explicit Unescaper(TextView text) : text_(text) {}

  Text run() {
    while (pos_ < text_.size()) {
      const char32_t c = text_[pos_++];
      if (c == U'\\') {
        escape();
      } else {
        out_ += c;
      }
    }
    return std::move(out_);
  }

 private:
  void escape() {
    constexpr TextView kNames = U"\\'\"abfnrtv";
    const char32_t c = text_[pos_++];
    if (const std::size_t at = kNames.find(c); at != TextView::npos) {
      out_ += U"\\'\"\a\b\f\n\r\t\v"[at];
    } else if (c == U'x') {
      number(2, 2, 16);
    } else if (c == U'u') {
      number(4, 4, 16);
    } else if (c == U'U') {
      number(8, 8, 16);
    } else if (c >= U'0' && c < U'8') {
      --pos_;
      number(1, 3, 8);
    } else if (c != U'\n') {
      out_ += {U'\\', c};
    }
  }

  void number(std::size_t num_min, std::size_t num_max, int base) {
    char32_t value = 0;
    std::size_t num = 0;
    while (num < num_max && pos_ < text_.size() && hex_digit(text_[pos_]) < base) {
      value = value * static_cast<char32_t>(base) + static_cast<char32_t>(hex_digit(text_[pos_++]));
      ++num;
    }
    if (num < num_min || value > 0x10FFFF) throw TemplateError("a wrong escape in a text");
    out_ += value;
  }

  TextView text_;
  std::size_t pos_ = 0;
  Text out_;
};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(with_plain_newlines(text_of(source))) {}

  std::vector<Token> run() {
    while (pos_ < source_.size()) data();
    tokens_.push_back({.line = line_});
    return std::move(tokens_);
  }

 private:
  using Kind = Token::Kind;

  TextView rest() const { return TextView(source_).substr(pos_); }
  bool at(TextView text) const { return rest().starts_with(text); }
  char32_t peek(std::size_t ahead = 0) const {
    return pos_ + ahead < source_.size() ? source_[pos_ + ahead] : 0;
  }

  void advance(std::size_t size) {
    line_ += static_cast<int>(jinja::count(rest().substr(0, size), U"\n"));
    pos_ += size;
  }
  void skip_space() {
    while (pos_ < source_.size() && is_space(source_[pos_])) advance(1);
  }
  void add(Kind kind, std::string text = {}, Value value = {}) {
    tokens_.push_back(
        {.kind = kind, .text = std::move(text), .value = std::move(value), .line = line_});
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw TemplateError("line " + std::to_string(line_) + ": " + what);
  }

  // Up to the next tag, and that.
  void data() {
    std::size_t begin = source_.find(U'{', pos_);
    const auto is_tag = [&] {
      return begin + 1 < source_.size() &&
             TextView(U"{%#").find(source_[begin + 1]) != TextView::npos;
    };
    while (begin != Text::npos && !is_tag()) begin = source_.find(U'{', begin + 1);
    if (begin == Text::npos) {
      add(Kind::kData, {}, make_text(rest()));
      pos_ = source_.size();
      return;
    }
    const char32_t tag = source_[begin + 1];
    const char32_t sign = begin + 2 < source_.size() ? source_[begin + 2] : 0;
    const TextView text = stripped(rest().substr(0, begin - pos_), sign, tag == U'{');
    if (!text.empty()) add(Kind::kData, {}, make_text(text));
    advance(begin - pos_ + (sign == U'-' || sign == U'+' ? 3 : 2));
    if (tag == U'#') {
      comment();
    } else if (tag == U'{') {
      this->tag(Kind::kVariableBegin, Kind::kVariableEnd, U"}}");
    } else if (!raw()) {
      this->tag(Kind::kBlockBegin, Kind::kBlockEnd, U"%}");
    }
  }

  // What a tag leaves of the text before it.
  TextView stripped(TextView text, char32_t sign, bool is_variable) const {
    if (sign == U'-') return strip(text, Ends::kRight);
    if (sign == U'+' || is_variable) return text;
    const std::size_t newline = text.rfind(U'\n');
    const std::size_t line = newline == TextView::npos ? 0 : newline + 1;
    if (line == 0 && !line_begins_) return text;
    const TextView last = text.substr(line);
    return !last.empty() && strip(last, Ends::kLeft).empty() ? text.substr(0, line) : text;
  }

  // Whether a tag ends here, whose end is passed then; what comes after it is trimmed.
  bool end_tag(TextView end, bool is_variable) {
    const char32_t sign = peek();
    const bool is_signed =
        (sign == U'-' || (sign == U'+' && !is_variable)) && rest().substr(1).starts_with(end);
    if (!is_signed && !at(end)) return false;
    advance(end.size() + (is_signed ? 1 : 0));
    if (is_signed && sign == U'-') {
      skip_space();
    } else if (!is_signed && !is_variable && peek() == U'\n') {
      advance(1);
    }
    line_begins_ = pos_ > 0 && source_[pos_ - 1] == U'\n';
    return true;
  }

  void comment() {
    while (!end_tag(U"#}", false)) {
      if (pos_ >= source_.size()) fail("Missing end of comment tag");
      advance(1);
    }
  }

  // Behind {%: whether this is {% raw %}, of which all is data up to {% endraw %}.
  bool raw() {
    const std::size_t begin = pos_;
    const int line = line_;
    skip_space();
    const bool is_raw = at(U"raw");
    advance(is_raw ? 3 : 0);
    skip_space();
    const bool strips = peek() == U'-';
    if (!is_raw || !rest().substr(strips ? 1 : 0).starts_with(U"%}")) {
      pos_ = begin;
      line_ = line;
      return false;
    }
    advance(strips ? 3 : 2);
    if (strips) skip_space();
    line_begins_ = pos_ > 0 && source_[pos_ - 1] == U'\n';
    const std::size_t text_begin = pos_;
    while (pos_ < source_.size()) {
      const std::size_t text_end = pos_;
      if (!at(U"{%")) {
        advance(1);
        continue;
      }
      const char32_t sign = peek(2);
      advance(sign == U'-' || sign == U'+' ? 3 : 2);
      skip_space();
      if (!at(U"endraw")) continue;
      advance(6);
      skip_space();
      const TextView text = TextView(source_).substr(text_begin, text_end - text_begin);
      const TextView kept = stripped(text, sign, false);
      if (!end_tag(U"%}", false)) continue;
      add(Kind::kData, {}, make_text(kept));
      return true;
    }
    fail("Missing end of raw directive");
  }

  void tag(Kind begin, Kind end, TextView end_text) {
    add(begin);
    std::string open;  // the brackets that are
    while (true) {
      skip_space();
      if (open.empty() && end_tag(end_text, end == Kind::kVariableEnd)) break;
      if (pos_ >= source_.size()) fail("unexpected end of template");
      token(open);
    }
    add(end);
  }

  void token(std::string& open) {
    const char32_t c = peek();
    if (is_ascii_digit(c)) {
      number();
    } else if (c == U'_' || is_alpha(c)) {
      std::size_t size = 1;
      while (peek(size) == U'_' || is_alpha(peek(size)) || is_decimal(peek(size))) ++size;
      add(Kind::kName, utf8_of(rest().substr(0, size)));
      pos_ += size;
    } else if (c == U'\'' || c == U'"') {
      string();
    } else {
      punctuation(open);
    }
  }

  void string() {
    const char32_t quote = peek();
    std::size_t size = 1;
    while (peek(size) != quote) {
      size += peek(size) == U'\\' ? 2 : 1;
      if (pos_ + size >= source_.size()) fail("a text does not end");
    }
    add(Kind::kString, {}, make_text(Unescaper(rest().substr(1, size - 1)).run()));
    advance(size + 1);
  }

  // Digits with _ between; none: 0.
  std::size_t num_digits(std::size_t from, int base) const {
    std::size_t size = 0;
    while (hex_digit(peek(from + size)) < base ||
           (peek(from + size) == U'_' && size > 0 && hex_digit(peek(from + size + 1)) < base)) {
      ++size;
    }
    return size;
  }

  void number() {
    std::size_t size = num_digits(0, 10);
    bool is_float = false;
    if (peek() == U'0' && size == 1) {
      const char32_t kind = peek(1) | 0x20;
      const int base = kind == U'x' ? 16 : kind == U'o' ? 8 : kind == U'b' ? 2 : 0;
      const std::size_t from = peek(2) == U'_' ? 3 : 2;
      if (base > 0 && num_digits(from, base) > 0) {
        based(from, num_digits(from, base), base);
        return;
      }
    }
    const bool after_dot = !tokens_.empty() && tokens_.back().is(Kind::kOperator, ".");
    if (!after_dot && peek(size) == U'.' && num_digits(size + 1, 10) > 0) {
      size += 1 + num_digits(size + 1, 10);
      is_float = true;
    }
    if (!after_dot && (peek(size) | 0x20) == U'e') {
      const std::size_t sign = peek(size + 1) == U'+' || peek(size + 1) == U'-' ? 1 : 0;
      if (const std::size_t digits = num_digits(size + 1 + sign, 10); digits > 0) {
        size += 1 + sign + digits;
        is_float = true;
      }
    }
    std::string text = utf8_of(rest().substr(0, size));
    std::erase(text, '_');
    if (!is_float && text[0] == '0' && text.find_first_not_of('0') != std::string::npos) {
      fail("a number begins with 0");
    }
    add(Kind::kNumber, {},
        is_float ? Value(std::strtod(text.c_str(), nullptr))
                 : Value(Int(text.find_first_not_of('0') == std::string::npos ? "0" : text)));
    pos_ += size;
  }

  void based(std::size_t from, std::size_t size, int base) {
    Int value = 0;
    for (const char32_t c : rest().substr(from, size)) {
      if (c != U'_') value = value * base + hex_digit(c);
    }
    add(Kind::kNumber, {}, std::move(value));
    pos_ += from + size;
  }

  void punctuation(std::string& open) {
    constexpr std::array<TextView, 6> kTwo = {U"//", U"**", U"==", U"!=", U">=", U"<="};
    constexpr TextView kOne = U"+-/*%~[](){}><=.:|,;";
    const TextView two = rest().substr(0, 2);
    const bool is_two = std::ranges::find(kTwo, two) != kTwo.end();
    if (!is_two && kOne.find(peek()) == TextView::npos) {
      fail("unexpected char " + utf8_of(repr(rest().substr(0, 1))));
    }
    const std::string text = utf8_of(two.substr(0, is_two ? 2 : 1));
    constexpr std::string_view kOpening = "([{";
    constexpr std::string_view kClosing = ")]}";
    if (kOpening.find(text) != std::string_view::npos) open += text;
    if (const std::size_t at = kClosing.find(text); at != std::string_view::npos) {
      if (open.empty() || open.back() != kOpening[at]) fail("unexpected '" + text + "'");
      open.pop_back();
    }
    add(Kind::kOperator, text);
    pos_ += text.size();
  }

  const Text source_;
  std::size_t pos_ = 0;
  int line_ = 1;
  bool line_begins_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace lmtp::jinja
