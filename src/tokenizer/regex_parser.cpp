#include "regex_parser.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "utf8.h"

namespace lmtp::tokenizer {
namespace {

using Ranges = std::vector<CodePointRange>;

constexpr char32_t kLongS = 0x17F;        // folds to s
constexpr char32_t kKelvinSign = 0x212A;  // folds to k

bool is_ascii_letter(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

Ranges copy_of(std::span<const CodePointRange> ranges) { return {ranges.begin(), ranges.end()}; }

// Oniguruma's \w is Rust's but for these.
Ranges oniguruma_word_ranges() {
  Ranges ranges = copy_of(word_ranges());
  for (const char32_t c : {0xB2, 0xB3, 0xB9, 0xBC, 0xBD, 0xBE}) ranges.push_back({c, c});
  ranges = complement(merged(std::move(ranges)));
  ranges.push_back({0x200C, 0x200D});
  return complement(merged(std::move(ranges)));
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

class Parser {
 public:
  explicit Parser(std::string_view pattern) : pattern_(pattern) {}

  Result<std::vector<RegexPart>> parse() {
    while (pos_ < pattern_.size()) {
      if (auto parsed = parse_part(); !parsed) return parsed.error();
    }
    if (!caseless_.empty()) return Error{"a group is not closed"};
    return std::move(parts_);
  }

 private:
  Error unsupported(std::string_view what) const {
    return Error{"'" + std::string(what) + "' is not supported"};
  }
  bool at(std::string_view text) const { return pattern_.substr(pos_).starts_with(text); }
  bool caseless() const { return !caseless_.empty() && caseless_.back(); }

  void add_syntax(std::string_view syntax) {
    parts_.push_back({std::string(syntax), {}, false});
    pos_ += syntax.size();
  }
  void add_set(Ranges ranges) { parts_.push_back({"", std::move(ranges), true}); }

  Result<void> parse_part() {
    switch (pattern_[pos_]) {
      case '(':
        return parse_group();
      case ')':
        if (caseless_.empty()) return Error{"a group is closed that was not opened"};
        caseless_.pop_back();
        add_syntax(")");
        return {};
      case '|':
        add_syntax("|");
        return {};
      case '?':
      case '*':
      case '+':
        add_syntax(pattern_.substr(pos_, 1));
        return {};
      case '{':
        return parse_counts();
      case '[':
        return parse_class();
      case '\\': {
        auto set = parse_escape();
        if (!set) return set.error();
        add_set(folded(std::move(*set)));
        return {};
      }
      case '.':
        ++pos_;
        add_set(complement(Ranges{{'\n', '\n'}}));
        return {};
      case '^':
      case '$':
        return unsupported(pattern_.substr(pos_, 1));
      default: {
        const char32_t c = take_char();
        add_set(folded({{c, c}}));
        return {};
      }
    }
  }

  Result<void> parse_group() {
    for (const std::string_view opening : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"}) {
      if (!at(opening)) continue;
      caseless_.push_back(caseless());
      add_syntax(opening);
      return {};
    }
    if (at("(?i:")) {
      caseless_.push_back(true);
      pos_ += 4;
      parts_.push_back({"(?:", {}, false});
      return {};
    }
    if (at("(?")) return unsupported(pattern_.substr(pos_, 3));
    caseless_.push_back(caseless());
    pos_ += 1;
    parts_.push_back({"(?:", {}, false});  // nothing refers to what it captured
    return {};
  }

  // {n}, {n,}, {,m}, {n,m}. What may follow them (? and +) means other things in Oniguruma.
  Result<void> parse_counts() {
    const std::size_t end = pattern_.find('}', pos_);
    const std::string_view counts = pattern_.substr(pos_, end - pos_ + 1);
    if (end == std::string_view::npos || counts.size() < 3 ||
        counts.find_first_not_of("{},0123456789") != std::string_view::npos ||
        std::count(counts.begin(), counts.end(), ',') > 1) {
      return unsupported("{");
    }
    pos_ = end + 1;
    const bool from_nothing = counts[1] == ',';
    parts_.push_back(
        {from_nothing ? "{0" + std::string(counts.substr(1)) : std::string(counts), {}, false});
    if (at("?") || at("+")) return unsupported("}" + std::string(pattern_.substr(pos_, 1)));
    return {};
  }

  Result<void> parse_class() {
    ++pos_;
    const bool negated = at("^");
    if (negated) ++pos_;
    if (at("]")) return unsupported("[]");
    Ranges ranges;
    while (!at("]")) {
      if (pos_ >= pattern_.size()) return Error{"a [ is not closed"};
      if (at("[") || at("&&")) return unsupported(pattern_.substr(pos_, 2));
      if (auto item = parse_class_item(ranges); !item) return item;
    }
    ++pos_;
    ranges = folded(merged(std::move(ranges)));
    add_set(negated ? complement(ranges) : std::move(ranges));
    return {};
  }

  // One character, escape or range.
  Result<void> parse_class_item(Ranges& ranges) {
    auto first = parse_class_atom();
    if (!first) return first.error();
    const bool is_range = at("-") && !at("-]");
    if (is_range) {
      ++pos_;
      if (pos_ >= pattern_.size()) return Error{"a [ is not closed"};
      auto last = parse_class_atom();
      if (!last) return last.error();
      if (first->size() != 1 || last->size() != 1 || first->front().first > last->front().last) {
        return unsupported("a range that is not from one character to a later one");
      }
      first->front().last = last->front().last;
    }
    ranges.insert(ranges.end(), first->begin(), first->end());
    return {};
  }

  Result<Ranges> parse_class_atom() {
    if (pattern_[pos_] == '\\') return parse_escape();
    const char32_t c = take_char();
    return Ranges{{c, c}};
  }

  char32_t take_char() {
    const CodePoint point = code_point_at(pattern_, pos_);
    pos_ += point.num_bytes;
    return point.value;
  }

  // What \X stands for; pos_ is at the backslash.
  Result<Ranges> parse_escape() {
    if (pos_ + 1 >= pattern_.size()) return Error{"it ends in a backslash"};
    const char c = pattern_[pos_ + 1];
    if (c == 'p' || c == 'P') return parse_property();
    if (c == 'x' || c == 'u') return parse_hex();
    pos_ += 2;
    const auto one = [](char32_t value) { return Ranges{{value, value}}; };
    switch (c) {
      case 'r':
        return one('\r');
      case 'n':
        return one('\n');
      case 't':
        return one('\t');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case 'a':
        return one('\a');
      case 'e':
        return one(0x1B);
      case 's':
        return copy_of(space_ranges());
      case 'S':
        return complement(space_ranges());
      case 'd':
        return ranges_of(categories_named("Nd"));
      case 'D':
        return complement(ranges_of(categories_named("Nd")));
      case 'w':
        return oniguruma_word_ranges();
      case 'W':
        return complement(oniguruma_word_ranges());
      default:
        break;
    }
    const auto letter = static_cast<unsigned char>(c);
    if (letter >= 0x80 || is_ascii_letter(letter) || (c >= '0' && c <= '9')) {
      return unsupported("\\" + std::string(1, c));
    }
    return one(letter);
  }

  // \p{Lu}, \P{L}, \p{^L}
  Result<Ranges> parse_property() {
    const std::size_t end = pattern_.find('}', pos_);
    if (end == std::string_view::npos || pos_ + 2 >= pattern_.size() || pattern_[pos_ + 2] != '{') {
      return unsupported(pattern_.substr(pos_, 3));
    }
    std::string_view name = pattern_.substr(pos_ + 3, end - pos_ - 3);
    bool negated = pattern_[pos_ + 1] == 'P';
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    const CategorySet categories = categories_named(name);
    if (categories == 0) return unsupported(pattern_.substr(pos_, end + 1 - pos_));
    pos_ = end + 1;
    Ranges ranges = ranges_of(categories);
    return negated ? complement(ranges) : ranges;
  }

  // \xHH, \x{H...}, \uHHHH
  Result<Ranges> parse_hex() {
    const bool braces = pattern_.substr(pos_ + 2, 1) == "{";
    const std::size_t begin = pos_ + (braces ? 3 : 2);
    const std::size_t digits_max = braces ? 6 : pattern_[pos_ + 1] == 'u' ? 4 : 2;
    char32_t value = 0;
    std::size_t end = begin;
    while (end < pattern_.size() && end < begin + digits_max && hex_value(pattern_[end]) >= 0) {
      value = value * 16 + static_cast<char32_t>(hex_value(pattern_[end++]));
    }
    const bool closed = !braces || pattern_.substr(end, 1) == "}";
    const bool whole = braces ? end > begin : end == begin + digits_max;
    // A byte above 7F is not a character to Oniguruma.
    if (!closed || !whole || value > kCodePointMax || (digits_max == 2 && value > 0x7F)) {
      return unsupported(pattern_.substr(pos_, end - pos_));
    }
    pos_ = end + (braces ? 1 : 0);
    return Ranges{{value, value}};
  }

  // Both cases, where case does not count. Folding beyond what folds to ASCII is left out.
  Ranges folded(Ranges ranges) const {
    if (!caseless()) return ranges;
    Ranges more = ranges;
    for (char32_t c = 'a'; c <= 'z'; ++c) {
      const char32_t upper = c - 'a' + 'A';
      const char32_t far = c == 's' ? kLongS : c == 'k' ? kKelvinSign : c;
      if (!contains(ranges, c) && !contains(ranges, upper) && !contains(ranges, far)) continue;
      for (const char32_t variant : {c, upper, far}) more.push_back({variant, variant});
    }
    return merged(std::move(more));
  }

  const std::string_view pattern_;
  std::size_t pos_ = 0;
  std::vector<bool> caseless_;  // of each open group
  std::vector<RegexPart> parts_;
};

}  // namespace

Result<std::vector<RegexPart>> parse_regex(std::string_view pattern) {
  return Parser(pattern).parse();
}

}  // namespace lmtp::tokenizer
