#include "escaped_lark.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "lark_rules.h"
#include "lmtp/base/json.h"
#include "lmtp/base/text.h"
#include "lmtp/base/utf8.h"

namespace lmtp::server {
namespace {

struct Escape {
  char32_t character;
  char letter;  // after the backslash
};
constexpr Escape kEscapes[] = {{'"', '"'},  {'\\', '\\'}, {'\n', 'n'}, {'\r', 'r'},
                               {'\t', 't'}, {'\b', 'b'},  {'\f', 'f'}};
// What is in a string of JSON as it is.
constexpr std::string_view kPlain = R"([^"\\\x00-\x1f])";

struct Imported {
  std::string_view name;
  std::string_view body;  // with escapes
};
// Those terminals of Lark's common.lark that have characters to be escaped.
constexpr Imported kCommon[] = {
    {"LF", R"("\\n")"},
    {"CR", R"("\\r")"},
    {"NEWLINE", R"(/((\\r)?\\n)+/)"},
    {"WS", R"(/( |\\[tfrn])+/)"},
    {"WS_INLINE", R"(/( |\\t)+/)"},
    {"ESCAPED_STRING", R"(/\\"([^"\\\x00-\x1f]|\\\\([^"\\\x00-\x1f]|\\["\\]))*\\"/)"},
};
constexpr std::string_view kPlainCommon[] = {
    "DIGIT",  "HEXDIGIT",      "INT",          "SIGNED_INT",   "DECIMAL", "FLOAT", "SIGNED_FLOAT",
    "NUMBER", "SIGNED_NUMBER", "LCASE_LETTER", "UCASE_LETTER", "LETTER",  "WORD",  "CNAME"};

Error not_allowed(const std::string& what) {
  return {ErrorCode::kInvalid,
          what +
              "; allowed are rules, texts, regular expressions of characters, classes, groups "
              "and quantifiers, %ignore, and %import common.NAME"};
}

// The regular expression between its slashes, from left to right.
class RegexEscaper {
 public:
  RegexEscaper(std::string_view regex, bool dots_are_all) : rest_(regex) {
    dots_.push_back(dots_are_all);
  }

  Result<std::string> escape() && {
    while (!rest_.empty() && !failed_) step();
    if (failed_) return not_allowed("has a regular expression with '" + *failed_ + "'");
    return std::move(out_);
  }

 private:
  void fail(std::string_view what) {
    if (!failed_) failed_ = shortened(what, 16);
    rest_ = {};
  }
  bool take(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }

  void step() {
    const char c = rest_.front();
    if (c == '[') return add_class();
    if (c == '(') return open();
    if (c == '\\') return add_escape();
    if (take(".")) {
      return add_set(kPlain, [&](char32_t one) { return dots_.back() || one != '\n'; });
    }
    if (c == ')' && dots_.size() > 1) dots_.pop_back();
    if (std::string_view(")|*+?{}^$").find(c) != std::string_view::npos) {
      out_ += c;
      rest_.remove_prefix(1);
      return;
    }
    add_character(next_character());
  }

  void open() {
    const bool dots = dots_.back();
    take("(");
    out_ += "(?:";
    dots_.push_back(dots);
    if (!take("?") || take(":")) return;
    if (take("s:")) {
      dots_.back() = true;
    } else if (rest_.starts_with("P<") ||
               (rest_.starts_with('<') && !rest_.starts_with("<=") && !rest_.starts_with("<!"))) {
      rest_.remove_prefix(std::min(rest_.size(), rest_.find('>') + 1));
    } else {
      fail("(?");
    }
  }

  // REQUIRES: there is one.
  char32_t next_character() {
    const Utf8Step step = utf8_step(rest_);
    const auto length = std::max<std::size_t>(1, step.num_bytes);
    const std::string_view bytes = rest_.substr(0, length);
    rest_.remove_prefix(bytes.size());
    char32_t code = 0;
    if (bytes.size() == 1) {
      code = static_cast<unsigned char>(bytes.front());
    } else {
      code = static_cast<unsigned char>(bytes.front()) & (0x7FU >> bytes.size());
      for (const char byte : bytes.substr(1)) {
        code = code << 6U | (static_cast<unsigned char>(byte) & 0x3FU);
      }
    }
    return code;
  }

  // \x41, \u0041, \u{41}: after the letter.
  std::optional<char32_t> hex(char letter) {
    const bool is_braced = take("{");
    const std::size_t num = is_braced ? rest_.find('}') : letter == 'x' ? 2 : 4;
    if (num > rest_.size()) return std::nullopt;
    unsigned code = 0;
    const std::string digits(rest_.substr(0, num));
    const char* const end = digits.data() + digits.size();
    const auto [at, error] = std::from_chars(digits.data(), end, code, 16);
    const bool is_surrogate = code >= 0xd800 && code <= 0xdfff;
    if (error != std::errc() || at != end || code > 0x10ffff || is_surrogate) return std::nullopt;
    rest_.remove_prefix(num + (is_braced ? 1 : 0));
    return code;
  }

  // One that an escape stands for; nothing: it stands for a class, or for no character.
  std::optional<char32_t> escaped_character() {
    const char c = rest_.empty() ? '\0' : rest_.front();
    const auto* const known = std::ranges::find(kEscapes, c, &Escape::letter);
    const bool is_letter =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (c == 'n' || c == 'r' || c == 't' || c == 'f') {
      rest_.remove_prefix(1);
      return known->character;
    }
    if (c == 'x' || c == 'u') {
      rest_.remove_prefix(1);
      return hex(c);
    }
    if (is_letter || c == '\0') return std::nullopt;
    return next_character();
  }

  void add_escape() {
    take("\\");
    const std::string_view before = rest_;
    if (const auto character = escaped_character()) return add_character(*character);
    rest_ = before;
    const char c = rest_.empty() ? '\0' : rest_.front();
    const std::string name{'\\', c};
    if (std::string_view("dwDWsS").find(c) == std::string_view::npos || c == '\0') {
      return fail(name);
    }
    rest_.remove_prefix(1);
    if (c == 'd' || c == 'w') {
      out_ += name;
      return;
    }
    add_set("[" + name + "&&" + std::string(kPlain) + "]",
            [&](char32_t one) { return is_in(c, one); });
  }

  // Whether the class of that letter has one of the characters that are escaped.
  static bool is_in(char letter, char32_t one) {
    const bool is_space = one == '\n' || one == '\r' || one == '\t' || one == '\f';
    if (letter == 's') return is_space;
    if (letter == 'S') return !is_space;
    return letter == 'D' || letter == 'W';
  }

  void add_character(char32_t character) {
    const auto* const found = std::ranges::find(kEscapes, character, &Escape::character);
    if (found != std::end(kEscapes)) {
      const bool is_letter = found->letter >= 'a';
      out_ += is_letter ? R"((?:\\)" : R"((?:\\\)";
      out_ += found->letter;
      out_ += ')';
      return;
    }
    if (character < 0x20) return fail("a control character");
    constexpr std::string_view kEscaped = R"(\.+*?()|[]{}^$#&-~/)";
    if (character < 0x80 && kEscaped.find(static_cast<char>(character)) != std::string_view::npos) {
      out_ += '\\';
    }
    append_utf8(character, out_);
  }

  // `plain`: a class without what is escaped; `has`: whether the set has one of those.
  template <typename Has>
  void add_set(std::string_view plain, Has has) {
    std::string letters;
    for (const Escape& escape : kEscapes) {
      if (!has(escape.character)) continue;
      if (escape.letter == '"' || escape.letter == '\\') letters += '\\';
      letters += escape.letter;
    }
    out_ += "(?:";
    out_ += plain;
    if (!letters.empty()) out_ += R"(|\\[)" + letters + "]";
    out_ += ')';
  }

  struct Part {
    char32_t low = 0;
    char32_t high = 0;
    char letter = '\0';  // of a class, in the place of both
  };

  std::optional<Part> class_part() {
    if (rest_.empty() || rest_.starts_with('[') || rest_.starts_with("&&") ||
        rest_.starts_with("--") || rest_.starts_with("~~")) {
      return std::nullopt;
    }
    if (!take("\\")) {
      const char32_t one = next_character();
      return Part{one, one};
    }
    const std::string_view before = rest_;
    if (const auto one = escaped_character()) return Part{*one, *one};
    rest_ = before;
    if (rest_.empty() || std::string_view("dwDWsS").find(rest_.front()) == std::string_view::npos) {
      return std::nullopt;
    }
    const Part part{0, 0, rest_.front()};
    rest_.remove_prefix(1);
    return part;
  }

  void add_class() {
    const std::string_view whole = rest_;
    take("[");
    const bool is_negated = take("^");
    std::vector<Part> parts;
    bool is_first = true;
    while (is_first || !rest_.starts_with(']')) {
      is_first = false;
      if (rest_.empty()) return fail("[");
      auto part = class_part();
      if (part && part->letter == '\0' && rest_.starts_with('-') && !rest_.starts_with("-]")) {
        take("-");
        const auto last = class_part();
        if (!last || last->letter != '\0') return fail(whole);
        part->high = last->high;
      }
      if (!part) return fail(whole);
      parts.push_back(*part);
    }
    const std::string_view text = whole.substr(0, whole.size() - rest_.size() + 1);
    take("]");
    add_set("[" + std::string(text) + "&&" + std::string(kPlain) + "]", [&](char32_t one) {
      const bool has = std::ranges::any_of(parts, [&](const Part& part) {
        if (part.letter != '\0') return is_in(part.letter, one);
        return part.low <= one && one <= part.high;
      });
      return has != is_negated;
    });
  }

  std::string_view rest_;
  std::string out_;
  std::vector<bool> dots_;  // of the groups around: whether a dot is a line's end, too
  std::optional<std::string> failed_;
};

class LarkEscaper {
 public:
  explicit LarkEscaper(std::string_view lark) : rest_(lark) {}

  Result<std::string> escape() && {
    while (!rest_.empty()) {
      if (auto taken = step(); !taken) return taken.error();
    }
    return std::move(out_);
  }

 private:
  Result<void> step() {
    const char c = rest_.front();
    if (rest_.starts_with("//") || c == '#') {
      rest_.remove_prefix(std::min(rest_.size(), rest_.find('\n')));
      return {};
    }
    if (c == '"') return add_text();
    if (c == '/') return add_regex();
    if (c == '%') return add_statement();
    if (c == '<' || c == '@' || c == '{' || c == '}') {
      return not_allowed("has '" + std::string(1, c) + "'");
    }
    out_ += c;
    rest_.remove_prefix(1);
    return {};
  }

  // What is quoted so, whose quotes are one byte; empty: it does not end.
  std::string_view quoted() {
    std::size_t end = 1;
    while (end < rest_.size() && rest_[end] != rest_.front()) end += rest_[end] == '\\' ? 2 : 1;
    if (end >= rest_.size()) return {};
    const std::string_view text = rest_.substr(0, end + 1);
    rest_.remove_prefix(text.size());
    return text;
  }
  std::string_view name() {
    std::size_t length = 0;
    while (length < rest_.size() &&
           (std::isalnum(static_cast<unsigned char>(rest_[length])) != 0 || rest_[length] == '_')) {
      ++length;
    }
    const std::string_view text = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return text;
  }

  Result<void> add_text() {
    const std::string_view quotes = quoted();
    const auto text = parse_json(quotes, "text");
    if (!text || !text->is_string()) return not_allowed("has a text that is not as in JSON");
    std::string inner;
    append_json_string(text->get<std::string>(), inner);
    inner = inner.substr(1, inner.size() - 2);
    const bool is_escaped = inner != text->get<std::string>();
    if (is_escaped && (rest_.starts_with('i') || rest_.starts_with(".."))) {
      return not_allowed("has a text with escapes before '" + std::string(rest_.substr(0, 2)) +
                         "'");
    }
    out_ += lark_quoted(inner).substr(1);
    return {};
  }

  Result<void> add_regex() {
    std::string_view regex = quoted();
    if (regex.size() < 3) return not_allowed("has a regular expression that is empty or open");
    regex = regex.substr(1, regex.size() - 2);
    bool dots_are_all = false;
    for (;
         !rest_.empty() && std::string_view("imslux").find(rest_.front()) != std::string_view::npos;
         rest_.remove_prefix(1)) {
      if (rest_.front() != 's' && rest_.front() != 'u') {
        return not_allowed("has a regular expression with the flag " +
                           std::string(1, rest_.front()));
      }
      dots_are_all = dots_are_all || rest_.front() == 's';
    }
    auto escaped = RegexEscaper(regex, dots_are_all).escape();
    if (!escaped) return escaped.error();
    out_ += "/" + *escaped + "/";
    return {};
  }

  Result<void> add_statement() {
    rest_.remove_prefix(1);
    const std::string_view statement = name();
    if (statement == "ignore") {
      out_ += "%ignore";
      return {};
    }
    rest_.remove_prefix(std::min(rest_.size(), rest_.find_first_not_of(" \t")));
    constexpr std::string_view kModule = "common.";
    if (statement != "import" || !rest_.starts_with(kModule)) {
      return not_allowed("has %" + shortened(statement, 16));
    }
    rest_.remove_prefix(kModule.size());
    const std::string_view terminal = name();
    const auto* const known = std::ranges::find(kCommon, terminal, &Imported::name);
    if (known != std::end(kCommon)) {
      out_ += std::string(terminal) + ": " + std::string(known->body);
    } else if (std::ranges::find(kPlainCommon, terminal) != std::end(kPlainCommon)) {
      out_ += "%import common." + std::string(terminal);
    } else {
      return not_allowed("imports common." + shortened(terminal, 32));
    }
    return {};
  }

  std::string_view rest_;
  std::string out_;
};

}  // namespace

Result<std::string> escaped_lark(std::string_view lark) { return LarkEscaper(lark).escape(); }

}  // namespace lmtp::server
