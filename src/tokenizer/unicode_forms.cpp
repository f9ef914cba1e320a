#include "unicode_forms.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "lmtp/base/utf8.h"

namespace lmtp::tokenizer {
namespace {

struct Composition {
  char32_t first, second, composed;
};
struct CombiningRun {
  char32_t first, last;
  std::uint8_t combining_class;
};

#include "unicode_forms.inc"

// Hangul syllables are composed by arithmetic (Unicode 16, section 3.12).
constexpr char32_t kSyllables = 0xAC00, kLeads = 0x1100, kVowels = 0x1161, kTrails = 0x11A7;
constexpr char32_t kNumLeads = 19, kNumVowels = 21, kNumTrails = 28;
constexpr char32_t kNumSyllables = kNumLeads * kNumVowels * kNumTrails;

bool is_syllable(char32_t c) { return c >= kSyllables && c < kSyllables + kNumSyllables; }

std::uint64_t pair_of(char32_t first, char32_t second) {
  return std::uint64_t{first} << 32 | second;
}

// Calls take(code point, decomposition) for each entry.
template <typename Take>
void for_each_entry(std::span<const char32_t> table, Take take) {
  for (std::size_t i = 0; i < table.size();) {
    const std::size_t length = table[i] % 32;
    take(table[i] / 32, std::u32string(table.begin() + i + 1, table.begin() + i + 1 + length));
    i += 1 + length;
  }
}

}  // namespace

UnicodeFormer::UnicodeFormer(UnicodeForm form)
    : composes_(form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc) {
  for (const CombiningRun& run : kCombiningRuns) {
    combining_.set({run.first, run.last}, run.combining_class);
  }
  const auto take = [this](char32_t c, std::u32string to) {
    decompositions_.insert_or_assign(c, std::move(to));
  };
  for_each_entry(kCanonical, take);
  if (form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd) for_each_entry(kCompatible, take);

  std::vector<CodePointRange> reactive;
  for (const CombiningRun& run : kCombiningRuns) reactive.push_back({run.first, run.last});
  if (composes_) {
    for (const Composition& pair : kCompositions) {
      compositions_.emplace(pair_of(pair.first, pair.second), pair.composed);
      reactive.push_back({pair.second, pair.second});
    }
    reactive.push_back({kVowels, kVowels + kNumVowels - 1});
    reactive.push_back({kTrails + 1, kTrails + kNumTrails - 1});
  } else {
    reactive.push_back({kSyllables, kSyllables + kNumSyllables - 1});
  }
  for (const auto& [c, to] : decompositions_) {
    std::u32string chars = to;
    if (composes_) compose(chars);
    // A character that recomposes is affected only by following marks, in the segment it begins.
    if (chars != std::u32string(1, c)) reactive.push_back({c, c});
  }
  for (const CodePointRange& range : merged(std::move(reactive))) reactive_.set(range, 1);
}

bool UnicodeFormer::may_change(std::string_view text) const {
  for (std::size_t pos = 0; pos < text.size();) {
    if (static_cast<unsigned char>(text[pos]) < 0x80) {
      ++pos;
      continue;
    }
    const CodePoint point = code_point_at(text, pos);
    if (!is_inert(point.value)) return true;
    pos += point.num_bytes;
  }
  return false;
}

void UnicodeFormer::apply(std::string_view text, std::string& out) const {
  std::u32string chars;
  std::size_t copied = 0;  // of `text`
  std::size_t before = 0;  // start of the character before `pos`
  for (std::size_t pos = 0; pos < text.size();) {
    const CodePoint point = code_point_at(text, pos);
    if (is_inert(point.value)) {
      before = pos;
      pos += point.num_bytes;
      continue;
    }
    // The segment: from the preceding inert character, which may compose with it, to the next one.
    const std::size_t begin = std::max(before, copied);
    out.append(text.substr(copied, begin - copied));
    chars.clear();
    std::size_t end = begin;
    while (end < text.size()) {
      const CodePoint part = code_point_at(text, end);
      if (end > pos && is_inert(part.value)) break;
      append_decomposed(part.value, chars);
      end += part.num_bytes;
    }
    sort_marks(chars);
    if (composes_) compose(chars);
    for (const char32_t c : chars) append_utf8(c, out);
    copied = pos = before = end;
  }
  out.append(text.substr(copied));
}

void UnicodeFormer::append_decomposed(char32_t c, std::u32string& out) const {
  if (is_syllable(c)) {
    const char32_t index = c - kSyllables;
    out.push_back(kLeads + index / (kNumVowels * kNumTrails));
    out.push_back(kVowels + index % (kNumVowels * kNumTrails) / kNumTrails);
    if (index % kNumTrails != 0) out.push_back(kTrails + index % kNumTrails);
    return;
  }
  const auto entry = decompositions_.find(c);
  if (entry == decompositions_.end()) {
    out.push_back(c);
  } else {
    out.append(entry->second);
  }
}

void UnicodeFormer::sort_marks(std::u32string& chars) const {
  for (std::size_t i = 0; i < chars.size();) {
    if (combining_.of(chars[i]) == 0) {
      ++i;
      continue;
    }
    std::size_t end = i;
    while (end < chars.size() && combining_.of(chars[end]) != 0) ++end;
    std::stable_sort(
        chars.begin() + static_cast<std::ptrdiff_t>(i),
        chars.begin() + static_cast<std::ptrdiff_t>(end),
        [this](char32_t a, char32_t b) { return combining_.of(a) < combining_.of(b); });
    i = end;
  }
}

void UnicodeFormer::compose(std::u32string& chars) const {
  constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t starter = kNone;
  std::size_t size = 0;  // of the composed part
  int last_class = -1;   // of the character before, unless that is the starter itself
  for (const char32_t c : chars) {
    const int own_class = combining_.of(c);
    // Blocked by a mark of the same or a higher combining class in between.
    if (starter != kNone && last_class < own_class) {
      const char32_t whole = composed(chars[starter], c);
      if (whole != 0) {
        chars[starter] = whole;
        continue;
      }
    }
    chars[size] = c;
    if (own_class == 0) {
      starter = size;
      last_class = -1;
    } else {
      last_class = own_class;
    }
    ++size;
  }
  chars.resize(size);
}

char32_t UnicodeFormer::composed(char32_t first, char32_t second) const {
  if (first >= kLeads && first < kLeads + kNumLeads && second >= kVowels &&
      second < kVowels + kNumVowels) {
    return kSyllables + ((first - kLeads) * kNumVowels + (second - kVowels)) * kNumTrails;
  }
  if (is_syllable(first) && (first - kSyllables) % kNumTrails == 0 && second > kTrails &&
      second < kTrails + kNumTrails) {
    return first + (second - kTrails);
  }
  const auto entry = compositions_.find(pair_of(first, second));
  return entry == compositions_.end() ? 0 : entry->second;
}

}  // namespace lmtp::tokenizer
