#include "gbnf_rules.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <utility>

#include "lmtp/base/json.h"
#include "lmtp/base/utf8.h"

namespace lmtp::constraint::gbnf {
namespace {

constexpr int kDepthMax = 64;  // of groups

Bytes first_byte(char32_t code) {
  std::string bytes;
  append_utf8(code, bytes);
  return Bytes().set(static_cast<unsigned char>(bytes.front()));
}

// Of all characters between the two.
Bytes first_bytes(char32_t from, char32_t to) {
  // From 80 on the first byte grows with the character.
  Bytes bytes;
  if (from < 0x80) {
    for (char32_t code = from; code <= std::min<char32_t>(to, 0x7f); ++code) bytes.set(code);
  }
  if (to < 0x80) return bytes;
  const Bytes low = first_byte(std::max<char32_t>(from, 0x80));
  const Bytes high = first_byte(to);
  for (std::size_t byte = low._Find_first(); byte <= high._Find_first(); ++byte) bytes.set(byte);
  return bytes;
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Result<Rules> read() {
    Rules rules;
    if (!is_utf8(text_)) fail("is not UTF-8");
    skip_space(true);
    while (!failed_ && !at_end()) {
      const std::string name = read_name();
      skip_space(false);
      if (!take("::=")) fail("'::=' is missing behind the name of a rule");
      skip_space(true);
      const std::size_t order = rules.size();
      rules[name] = {read_choice(0), order};
      if (!at_end() && peek() != '\n' && peek() != '\r') fail("is not what a rule may go on with");
      skip_space(true);
    }
    if (failed_) return *failed_;
    return rules;
  }

 private:
  bool at_end() const { return at_ >= text_.size() || failed_; }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  bool take(std::string_view what) {
    if (failed_ || !text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }

  void fail(const std::string& what) {
    if (failed_) return;
    const std::string_view before = text_.substr(0, at_);
    const auto line = std::ranges::count(before, '\n') + 1;
    const std::size_t line_begin = before.find_last_of('\n') + 1;
    failed_ = Error{ErrorCode::kInvalid, "GBNF, line " + std::to_string(line) + ", column " +
                                             std::to_string(at_ - line_begin + 1) + ": " + what};
  }

  void skip_space(bool over_lines) {
    while (!at_end()) {
      const char c = peek();
      if (c == '#') {
        at_ = std::min(text_.find_first_of("\r\n", at_), text_.size());
      } else if (c == ' ' || c == '\t' || (over_lines && (c == '\r' || c == '\n'))) {
        ++at_;
      } else {
        return;
      }
    }
  }

  static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
  }

  std::string read_name() {
    const std::size_t begin = at_;
    while (is_name(peek())) ++at_;
    if (begin == at_) fail("the name of a rule is missing");
    return std::string(text_.substr(begin, at_ - begin));
  }

  int read_number() {
    int number = 0;
    const char* const begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), number);
    if (error != std::errc{} || number < 0) fail("a number is missing, or too large");
    at_ += static_cast<std::size_t>(end - begin);
    return number;
  }

  // One character of a literal or a class, escaped or not.
  char32_t read_char() {
    if (at_end() || peek() == '\n' || peek() == '\r') {
      fail("the end of a literal or of a class of characters is missing");
      return 0;
    }
    if (!take("\\")) {
      const CodePoint decoded = code_point_at(text_, at_);
      at_ += decoded.num_bytes;
      return decoded.value;
    }
    const char c = peek();
    ++at_;
    switch (c) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'x':
        return read_hex(2);
      case 'u':
        return read_hex(4);
      case 'U':
        return read_hex(8);
      default:
        if (std::string_view("\"\\[]-^").find(c) == std::string_view::npos) {
          fail("is an unknown escape");
        }
        return static_cast<unsigned char>(c);
    }
  }

  char32_t read_hex(std::size_t num_digits) {
    std::uint32_t code = 0;
    const std::string_view digits = text_.substr(std::min(at_, text_.size()), num_digits);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    const bool is_whole = digits.size() == num_digits && end == digits.data() + num_digits;
    if (!is_whole || error != std::errc{} || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
      fail("is not the hexadecimal number of a character");
    }
    at_ += digits.size();
    return code;
  }

  Node read_literal() {
    std::string bytes;
    Node node{.kind = Node::Kind::kTerminal};
    while (!failed_ && !take("\"")) {
      const char32_t code = read_char();
      node.all |= first_byte(code);
      if (bytes.empty()) node.first = node.all;
      append_utf8(code, bytes);
    }
    std::string& literal = node.text;
    append_json_string(bytes, literal);
    for (std::size_t at = 0; (at = literal.find('\x7f', at)) != std::string::npos;) {
      literal.replace(at, 1, "\\u007f");
    }
    return node;
  }

  static Bytes any_character() { return first_bytes(0, 0x10ffff); }

  static std::string in_class(char32_t code) {
    std::array<char, 8> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(),
                                   static_cast<std::uint32_t>(code), 16);
    return "\\x{" + std::string(digits.data(), end.ptr) + "}";
  }

  Node read_class() {
    const bool is_negated = take("^");
    std::string regex = is_negated ? "/[^" : "/[";
    Bytes bytes;
    const std::size_t num_before = regex.size();
    while (!failed_ && !take("]")) {
      const char32_t first = read_char();
      regex += in_class(first);
      bytes |= first_byte(first);
      if (peek() != '-' || text_.substr(at_).starts_with("-]")) continue;
      ++at_;
      const char32_t last = read_char();
      if (last < first) fail("is a range that ends before it begins");
      regex += "-" + in_class(last);
      if (last >= first) bytes |= first_bytes(first, last);
    }
    if (regex.size() == num_before) fail("is an empty class of characters");
    // Not all characters that begin with a byte beyond ASCII are in the class.
    if (is_negated) bytes = (any_character() & ~bytes) | first_bytes(0x80, 0x10ffff);
    return {.kind = Node::Kind::kTerminal, .text = regex + "]/", .first = bytes, .all = bytes};
  }

  Node read_token() {
    const std::size_t end = text_.find_first_of("> \t\r\n", at_);
    if (end == std::string_view::npos || text_[end] != '>') fail("a token's '>' is missing");
    const std::size_t begin = std::exchange(at_, end + 1) - 1;
    return {.kind = Node::Kind::kToken, .text = std::string(text_.substr(begin, at_ - begin))};
  }

  // Nothing, where no item begins.
  std::optional<Node> read_item(int depth) {
    if (take("\"")) return read_literal();
    if (take("[")) return read_class();
    if (take("<")) return read_token();
    if (take(".")) {
      const Bytes any = any_character();
      return Node{.kind = Node::Kind::kTerminal, .text = "/(?s:.)/", .first = any, .all = any};
    }
    if (take("(")) {
      skip_space(true);
      Node group = read_choice(depth + 1);
      if (!take(")")) fail("')' is missing");
      return group;
    }
    if (is_name(peek())) return Node{.kind = Node::Kind::kRule, .text = read_name()};
    return std::nullopt;
  }

  // What stands behind an item.
  bool read_repeat(Node& item) {
    int least = 0;
    int most = kNoBound;
    if (take("+")) {
      least = 1;
    } else if (take("?")) {
      most = 1;
    } else if (take("{")) {
      skip_space(true);
      least = most = read_number();
      skip_space(true);
      if (take(",")) {
        skip_space(true);
        most = peek() == '}' ? kNoBound : read_number();
        skip_space(true);
      }
      if (!take("}")) fail("'}' is missing");
      if (most != kNoBound && most < least) fail("is a repetition that ends before it begins");
    } else if (!take("*")) {
      return false;
    }
    Node repeated = std::move(item);
    item = {.kind = Node::Kind::kRepeat, .least = least, .most = most};
    item.children.push_back(std::move(repeated));
    return true;
  }

  Node read_sequence(int depth) {
    Node sequence;
    while (std::optional<Node> item = read_item(depth)) {
      skip_space(depth > 0);
      for (int num = 0; read_repeat(*item); ++num) {
        skip_space(depth > 0);
        if (num >= kDepthMax) fail("is one repetition too many of the same item");
      }
      sequence.children.push_back(std::move(*item));
      if (failed_) break;
    }
    return sequence;
  }

  Node read_choice(int depth) {
    Node choice{.kind = Node::Kind::kChoice};
    if (depth > kDepthMax) {
      fail("is a group in more than " + std::to_string(kDepthMax) + " others");
      return choice;
    }
    do {
      skip_space(true);
      choice.children.push_back(read_sequence(depth));
      skip_space(depth > 0);
    } while (!failed_ && take("|"));
    return choice;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::optional<Error> failed_;
};

// Empty, where all are there.
std::string find_missing(const Node& node, const Rules& rules) {
  if (node.kind == Node::Kind::kRule && !rules.contains(node.text)) return node.text;
  for (const Node& child : node.children) {
    if (std::string name = find_missing(child, rules); !name.empty()) return name;
  }
  return {};
}

}  // namespace

Result<Rules> read(std::string_view text) {
  Result<Rules> rules = Reader(text).read();
  if (!rules) return rules;
  if (!rules->contains("root")) {
    return Error{ErrorCode::kInvalid, "GBNF: has no rule 'root', with which a text begins"};
  }
  for (const auto& [name, rule] : *rules) {
    const std::string missing = find_missing(rule.body, *rules);
    if (missing.empty()) continue;
    return Error{ErrorCode::kInvalid, "GBNF: has no rule '" + missing + "', which it names"};
  }
  return rules;
}

}  // namespace lmtp::constraint::gbnf
