#include "char_class.h"

#include <algorithm>

#include "lmtp/base/utf8.h"
#include "unicode_data.h"

namespace lmtp::tokenizer {

bool is_word_char(char32_t code_point) { return contains(word_ranges(), code_point); }

CharClasses::CharClasses() {
  const auto letters = ranges_of(categories_named("L"));
  const auto numbers = ranges_of(categories_named("N"));
  classes_.assign(std::max(letters.back().last, numbers.back().last) + 1, CharClass::kOther);
  const auto mark = [this](const auto& ranges, CharClass value) {
    for (const CodePointRange& range : ranges) {
      std::fill(classes_.begin() + range.first, classes_.begin() + range.last + 1, value);
    }
  };
  mark(letters, CharClass::kLetter);
  mark(numbers, CharClass::kNumber);
  mark(space_ranges(), CharClass::kSpace);
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
