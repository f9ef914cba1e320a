#include "regex_parser.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "lmtp/base/utf8.h"

namespace lmtp::tokenizer {
namespace {

using Ranges = std::vector<CodePointRange>;

constexpr char32_t kLongS = 0x17F;        // folds to s
constexpr char32_t kKelvinSign = 0x212A;  // folds to k
constexpr char32_t kIota = 0x3B9;
constexpr char32_t kIotaBeneath = 0x345;
constexpr int kClassDepthMax = 8;  // sets inside sets

bool is_ascii_letter(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

Ranges copy_of(std::span<const CodePointRange> ranges) { return {ranges.begin(), ranges.end()}; }

// Oniguruma's \w is Rust's except for these; the first are not in \w inside a set.
Ranges oniguruma_word_ranges(bool in_set) {
  Ranges ranges = copy_of(word_ranges());
  for (const char32_t c : {0xB2, 0xB3, 0xB9, 0xBC, 0xBD, 0xBE}) {
    if (!in_set) ranges.push_back({c, c});
  }
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
    if (groups_.size() > 1) return Error{ErrorCode::kInvalid, "a group is not closed"};
    close_inner_groups();
    return std::move(parts_);
  }

 private:
  // An open group, or the whole pattern.
  struct Group {
    std::size_t begin = 0;  // its first part
    bool caseless = false;
    bool dot_is_all = false;
    int num_inner = 0;  // groups that options such as (?i) began, which end where this one does
  };

  Error unsupported(std::string_view what) const {
    return Error{ErrorCode::kInvalid, "'" + std::string(what) + "' is not supported"};
  }
  bool at(std::string_view text) const { return pattern_.substr(pos_).starts_with(text); }

  void add(std::string_view syntax) { parts_.push_back({std::string(syntax), {}, false}); }
  void take(std::string_view syntax) {
    add(syntax);
    pos_ += syntax.size();
  }
  void add_set(Ranges ranges) { parts_.push_back({"", std::move(ranges), true}); }
  void begin_atom() { atom_ = parts_.size(); }

  Result<void> parse_part() {
    const char c = pattern_[pos_];
    if (c == '{') return parse_counts();
    if (c == '?' || c == '*' || c == '+') {
      take(pattern_.substr(pos_, 1));
      return {};
    }
    switch (c) {
      case '(':
        return parse_group();
      case ')':
        if (groups_.size() == 1) {
          return Error{ErrorCode::kInvalid, "a group is closed that was not opened"};
        }
        close_inner_groups();
        take(")");
        atom_ = groups_.back().begin;
        groups_.pop_back();
        return {};
      case '|':
        take("|");
        atom_.reset();
        return {};
      case '^':
      case '$':
        begin_atom();
        take(pattern_.substr(pos_, 1));  // anchors of each line; lines end at \n only
        return {};
      case '[': {
        begin_atom();
        bool negated = false;
        auto set = parse_class(1, negated);
        return set ? add_folded(std::move(*set), negated) : set.error();
      }
      case '\\':
        begin_atom();
        if (parse_assertion()) return {};
        return parse_set_escape();
      case '.':
        ++pos_;
        begin_atom();
        add_set(groups_.back().dot_is_all ? complement({}) : complement(Ranges{{'\n', '\n'}}));
        return {};
      default:
        return parse_literal();
    }
  }

  Result<void> parse_set_escape() {
    auto set = parse_escape(false);
    if (!set) return set.error();
    const bool is_char = set->size() == 1 && set->front().first == set->front().last;
    if (is_char) return add_folded(std::move(*set), false);
    add_set(std::move(*set));  // (?i) does not apply to \p{Lu}, but it does to [\p{Lu}]
    return {};
  }

  // With (?i), some characters match two others: \u00DF matches ss.
  Result<void> parse_literal() {
    begin_atom();
    const std::size_t begin = pos_;
    const char32_t c = take_char();
    const char32_t lower = lower_case(c);
    if (groups_.back().caseless && begin > 0 && begin == literal_end_) {
      for (const std::u32string_view pair : {U"ss", U"st", U"ff", U"fi", U"fl"}) {
        if (pair[0] == literal_before_ && pair[1] == lower) {
          return unsupported(std::string(1, static_cast<char>(pair[0])) +
                             static_cast<char>(pair[1]) + " without regard to case");
        }
      }
    }
    literal_before_ = lower;
    literal_end_ = pos_;
    return add_folded({{c, c}}, false);
  }

  // An option inside a group applies up to the group's end, alternatives included.
  void close_inner_groups() {
    for (; groups_.back().num_inner > 0; --groups_.back().num_inner) add(")");
  }

  Result<void> parse_group() {
    Group group = groups_.back();
    group.begin = parts_.size();
    group.num_inner = 0;
    atom_.reset();
    for (const std::string_view opening : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"}) {
      if (!at(opening)) continue;
      groups_.push_back(group);
      take(opening);
      return {};
    }
    const std::size_t name_end = at("(?<") ? pattern_.find('>', pos_) : std::string_view::npos;
    if (at("(?") && name_end == std::string_view::npos) return parse_options(group);
    groups_.push_back(group);
    pos_ = at("(?") ? name_end + 1 : pos_ + 1;
    add("(?:");  // captures are not used
    return {};
  }

  // (?i) or (?i:...), with m (a dot is any character) and a minus sign.
  Result<void> parse_options(Group group) {
    const std::size_t begin = pos_;
    bool on = true;
    for (pos_ += 2; pos_ < pattern_.size(); ++pos_) {
      const char c = pattern_[pos_];
      if (c == '-') {
        on = false;
      } else if (c == 'i') {
        group.caseless = on;
      } else if (c == 'm') {
        group.dot_is_all = on;
      } else {
        break;
      }
    }
    if (!at(":") && !at(")")) return unsupported(pattern_.substr(begin, pos_ + 1 - begin));
    add("(?:");
    if (at(":")) {
      groups_.push_back(group);
    } else {
      groups_.back().caseless = group.caseless;
      groups_.back().dot_is_all = group.dot_is_all;
      ++groups_.back().num_inner;
    }
    ++pos_;
    return {};
  }

  // {n}, {n,}, {,m}, {n,m}. In Oniguruma a following + repeats the whole again, and a ? after {n}
  // makes it optional: the counted part then becomes a group.
  Result<void> parse_counts() {
    const std::size_t end = pattern_.find('}', pos_);
    const std::string_view counts = pattern_.substr(pos_, end - pos_ + 1);
    if (end == std::string_view::npos || counts.size() < 3 || !atom_ ||
        counts.find_first_not_of("{},0123456789") != std::string_view::npos ||
        std::count(counts.begin(), counts.end(), ',') > 1) {
      return unsupported("{");
    }
    pos_ = end + 1;
    const bool exact = counts.find(',') == std::string_view::npos;
    const bool groups = at("+") || (exact && at("?"));
    if (groups) {
      parts_.insert(parts_.begin() + static_cast<std::ptrdiff_t>(*atom_), {"(?:", {}, false});
    }
    add((counts[1] == ',' ? "{0" + std::string(counts.substr(1)) : std::string(counts)) +
        (groups ? ")" : ""));
    return {};
  }

  // Assertions: \b, \B, \A, \z, \Z. The first two are expanded, since words are Oniguruma's. False
  // if it is none of them.
  bool parse_assertion() {
    for (const std::string_view same : {"\\A", "\\z", "\\Z"}) {
      if (!at(same)) continue;
      take(same);
      return true;
    }
    if (!at("\\b") && !at("\\B")) return false;
    const bool inside = at("\\B");
    pos_ += 2;
    const auto word = [this](std::string_view opening) {
      add(opening);
      add_set(oniguruma_word_ranges(false));
    };
    word("(?:(?<=");
    word(inside ? ")(?=" : ")(?!");
    word(")|(?<!");
    word(inside ? ")(?!" : ")(?=");
    add("))");
    return true;
  }

  // [...] with sets inside and with &&, which binds less than all else. `negated` is left to the
  // caller, who folds case before that.
  Result<Ranges> parse_class(int depth, bool& negated) {
    if (depth > kClassDepthMax) return unsupported("[[[");
    ++pos_;
    negated = at("^");
    if (negated) ++pos_;
    std::optional<Ranges> before;  // the operand to the left of &&
    Ranges ranges;
    while (!at("]") || ranges.empty()) {
      if (pos_ >= pattern_.size()) return Error{ErrorCode::kInvalid, "a [ is not closed"};
      if (at("]")) return unsupported("[]");
      if (at("&&")) {
        if (ranges.empty()) return unsupported("[&&");
        before = both(before, std::move(ranges));
        ranges.clear();
        pos_ += 2;
      } else if (at("[")) {
        bool inner_negated = false;
        auto inner = at("[:") ? parse_posix() : parse_class(depth + 1, inner_negated);
        if (!inner) return inner;
        if (inner_negated) inner = complement(merged(std::move(*inner)));
        if (inner->empty()) return unsupported("a set of nothing");
        ranges.insert(ranges.end(), inner->begin(), inner->end());
      } else if (auto item = parse_class_item(ranges); !item) {
        return item.error();
      }
    }
    ++pos_;
    return both(before, std::move(ranges));
  }

  static Ranges both(const std::optional<Ranges>& before, Ranges ranges) {
    ranges = merged(std::move(ranges));
    if (!before) return ranges;
    Ranges outside = complement(*before);
    for (const CodePointRange& range : complement(ranges)) outside.push_back(range);
    return complement(merged(std::move(outside)));
  }

  // [:space:], inside a set.
  Result<Ranges> parse_posix() {
    for (const std::string_view name : {"digit", "space"}) {
      const std::string whole = "[:" + std::string(name) + ":]";
      if (!at(whole)) continue;
      pos_ += whole.size();
      return property_named(name);
    }
    return unsupported(pattern_.substr(pos_, 2));
  }

  // One character, escape or range.
  Result<void> parse_class_item(Ranges& ranges) {
    auto first = parse_class_atom();
    if (!first) return first.error();
    const bool is_range = at("-") && !at("-]") && !at("-[") && !at("-&&");
    if (is_range) {
      ++pos_;
      if (pos_ >= pattern_.size()) return Error{ErrorCode::kInvalid, "a [ is not closed"};
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
    if (pattern_[pos_] == '\\') return parse_escape(true);
    const char32_t c = take_char();
    return Ranges{{c, c}};
  }

  char32_t take_char() {
    const CodePoint point = code_point_at(pattern_, pos_);
    pos_ += point.num_bytes;
    return point.value;
  }

  // What \X stands for; pos_ is at the backslash.
  Result<Ranges> parse_escape(bool in_set) {
    if (pos_ + 1 >= pattern_.size()) return Error{ErrorCode::kInvalid, "it ends in a backslash"};
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
      case 'h':
        return Ranges{{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
      case 'w':
        return oniguruma_word_ranges(in_set);
      case 'W':
        return complement(oniguruma_word_ranges(in_set));
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
    Ranges ranges = property_named(name);
    if (ranges.empty()) return unsupported(pattern_.substr(pos_, end + 1 - pos_));
    pos_ = end + 1;
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

  // Adds both cases if (?i) applies.
  Result<void> add_folded(Ranges ranges, bool negated) {
    if (groups_.back().caseless) {
      for (char32_t c = 'a'; c <= 'z'; ++c) {
        const char32_t upper = c - 'a' + 'A';
        const char32_t far = c == 's' ? kLongS : c == 'k' ? kKelvinSign : c;
        if (!contains(ranges, c) && !contains(ranges, upper) && !contains(ranges, far)) continue;
        for (const char32_t variant : {c, upper, far}) ranges.push_back({variant, variant});
        ranges = merged(std::move(ranges));
      }
      // The one mark that folds to a letter: an iota beneath another one.
      if (contains(ranges, kIota)) ranges.push_back({kIotaBeneath, kIotaBeneath});
      ranges = merged(std::move(ranges));
      if (!closed_under_case(ranges)) {
        return unsupported("letters beyond ASCII without regard to case");
      }
    }
    add_set(negated ? complement(ranges) : std::move(ranges));
    return {};
  }

  const std::string_view pattern_;
  std::size_t pos_ = 0;
  std::vector<Group> groups_ = {Group()};
  std::vector<RegexPart> parts_;
  std::optional<std::size_t> atom_;  // the first part of the atom that a quantifier applies to
  char32_t literal_before_ = 0;      // in lower case, and where it ends
  std::size_t literal_end_ = 0;
};

}  // namespace

Result<std::vector<RegexPart>> parse_regex(std::string_view pattern) {
  return Parser(pattern).parse();
}

}  // namespace lmtp::tokenizer
