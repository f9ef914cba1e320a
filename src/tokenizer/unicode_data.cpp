#include "unicode_data.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>

namespace lmtp::tokenizer {
namespace {

// `step` 2: every other character (capital and small letters alternate).
struct LowerRun {
  char32_t first, last;
  std::uint32_t step;
  std::int32_t delta;
};

struct ScriptRange {
  char32_t first, last;
  std::uint32_t script;
};

#include "unicode_ranges.inc"

constexpr std::array<std::string_view, 29> kCategoryNames = {
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe",
    "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cn"};

constexpr std::array<std::string_view, 29> kScriptNames = {
    "arabic",   "armenian", "bengali",   "bopomofo",  "cyrillic", "devanagari",
    "ethiopic", "georgian", "greek",     "gujarati",  "gurmukhi", "han",
    "hangul",   "hebrew",   "hiragana",  "kannada",   "katakana", "khmer",
    "lao",      "latin",    "malayalam", "mongolian", "myanmar",  "oriya",
    "sinhala",  "tamil",    "telugu",    "thai",      "tibetan"};

// Long names of categories.
struct NamedCategory {
  std::string_view name, category;
};
constexpr NamedCategory kLongNames[] = {{"letter", "L"},
                                        {"mark", "M"},
                                        {"number", "N"},
                                        {"punctuation", "P"},
                                        {"punct", "P"},
                                        {"symbol", "S"},
                                        {"separator", "Z"},
                                        {"other", "C"},
                                        {"decimalnumber", "Nd"},
                                        {"digit", "Nd"},
                                        {"uppercaseletter", "Lu"},
                                        {"lowercaseletter", "Ll"},
                                        {"titlecaseletter", "Lt"},
                                        {"modifierletter", "Lm"},
                                        {"otherletter", "Lo"}};

}  // namespace

CategorySet categories_named(std::string_view name) {
  CategorySet set = 0;
  for (std::size_t i = 0; i < kCategoryNames.size(); ++i) {
    if (name == kCategoryNames[i] || (name.size() == 1 && name[0] == kCategoryNames[i][0])) {
      set |= CategorySet{1} << i;
    }
  }
  return set;
}

std::vector<CodePointRange> ranges_of(CategorySet categories) {
  std::vector<CodePointRange> ranges;
  char32_t at = 0;
  const auto take = [&](char32_t last, std::uint32_t category) {
    if ((categories >> category & 1) == 0) return;
    if (!ranges.empty() && ranges.back().last + 1 == at) {
      ranges.back().last = last;
    } else {
      ranges.push_back({at, last});
    }
  };
  for (const std::uint32_t run : kCategoryRuns) {
    const char32_t last = at + run / 32 - 1;
    take(last, run % 32);
    at = last + 1;
  }
  if (at <= kCodePointMax) take(kCodePointMax, kCategoryNames.size() - 1);
  return ranges;
}

std::vector<CodePointRange> property_named(std::string_view name) {
  std::string plain;  // case, spaces, hyphens and underscores are ignored
  for (const char c : name) {
    const bool capital = c >= 'A' && c <= 'Z';
    if (c != ' ' && c != '-' && c != '_') plain += static_cast<char>(capital ? c - 'A' + 'a' : c);
  }
  if (plain == "space" || plain == "whitespace") {
    return {space_ranges().begin(), space_ranges().end()};
  }
  for (const NamedCategory& known : kLongNames) {
    if (known.name == plain) plain = known.category;
  }
  if (!plain.empty() && plain[0] >= 'a' && plain.size() <= 2) {
    plain[0] = static_cast<char>(plain[0] - 'a' + 'A');
  }
  if (const CategorySet set = categories_named(plain); set != 0) return ranges_of(set);
  std::vector<CodePointRange> ranges;
  for (const ScriptRange& range : kScriptRanges) {
    if (kScriptNames[range.script] == plain) ranges.push_back({range.first, range.last});
  }
  return ranges;
}

std::vector<CodePointRange> merged(std::vector<CodePointRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const CodePointRange& a, const CodePointRange& b) { return a.first < b.first; });
  std::vector<CodePointRange> out;
  for (const CodePointRange& range : ranges) {
    if (!out.empty() && range.first <= out.back().last + 1) {
      out.back().last = std::max(out.back().last, range.last);
    } else {
      out.push_back(range);
    }
  }
  return out;
}

std::vector<CodePointRange> complement(std::span<const CodePointRange> ranges) {
  std::vector<CodePointRange> out;
  char32_t at = 0;
  for (const CodePointRange& range : ranges) {
    if (range.first > at) out.push_back({at, range.first - 1});
    at = range.last + 1;
  }
  if (at <= kCodePointMax) out.push_back({at, kCodePointMax});
  return out;
}

std::span<const CodePointRange> space_ranges() { return kSpaces; }
std::span<const CodePointRange> word_ranges() { return kWordChars; }
std::span<const CodePointRange> digit_ranges() { return kDigits; }
std::span<const CodePointRange> punctuation_ranges() { return kPunctuation; }

bool contains(std::span<const CodePointRange> sorted, char32_t code_point) {
  const auto range =
      std::lower_bound(sorted.begin(), sorted.end(), code_point,
                       [](const CodePointRange& r, char32_t value) { return r.last < value; });
  return range != sorted.end() && range->first <= code_point;
}

bool closed_under_case(std::span<const CodePointRange> ranges) {
  // The tables of categories are of an older Unicode version than those of lower case.
  const std::vector<CodePointRange> unassigned = ranges_of(categories_named("Cn"));
  for (const LowerRun& run : kLowerRuns) {
    for (char32_t c = run.first; c <= run.last; c += run.step) {
      if (c < 0x80 || contains(unassigned, c)) continue;
      if (contains(ranges, c) != contains(ranges, lower_case(c))) return false;
    }
  }
  return true;
}

char32_t lower_case(char32_t code_point) {
  const auto* run =
      std::lower_bound(std::begin(kLowerRuns), std::end(kLowerRuns), code_point,
                       [](const LowerRun& r, char32_t value) { return r.last < value; });
  if (run == std::end(kLowerRuns) || code_point < run->first) return code_point;
  if ((code_point - run->first) % run->step != 0) return code_point;
  return static_cast<char32_t>(static_cast<std::int32_t>(code_point) + run->delta);
}

}  // namespace lmtp::tokenizer
