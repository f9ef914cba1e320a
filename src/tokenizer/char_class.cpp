#include "char_class.h"

#include <algorithm>
#include <iterator>

#include "utf8.h"

namespace lmtp::tokenizer {
namespace {

struct CodePointRange {
  char32_t first, last;
};

#include "unicode_ranges.inc"

}  // namespace

bool is_word_char(char32_t code_point) {
  const auto* range =
      std::lower_bound(std::begin(kWordChars), std::end(kWordChars), code_point,
                       [](const CodePointRange& r, char32_t value) { return r.last < value; });
  return range != std::end(kWordChars) && range->first <= code_point;
}

CharClasses::CharClasses() {
  const char32_t last =
      std::max(std::prev(std::end(kLetters))->last, std::prev(std::end(kNumbers))->last);
  classes_.assign(last + 1, CharClass::kOther);
  const auto mark = [this](const auto& ranges, CharClass value) {
    for (const CodePointRange& range : ranges) {
      std::fill(classes_.begin() + range.first, classes_.begin() + range.last + 1, value);
    }
  };
  mark(kLetters, CharClass::kLetter);
  mark(kNumbers, CharClass::kNumber);
  mark(kSpaces, CharClass::kSpace);
}

std::size_t CharClasses::run_end(std::string_view text, std::size_t pos, CharClass wanted) const {
  while (pos < text.size()) {
    const auto byte = static_cast<unsigned char>(text[pos]);
    if (byte < 0x80) {
      if (classes_[byte] != wanted) return pos;
      ++pos;
      continue;
    }
    const CodePoint point = code_point_at(text, pos);
    if (of(point.value) != wanted) return pos;
    pos += point.num_bytes;
  }
  return pos;
}

}  // namespace lmtp::tokenizer
