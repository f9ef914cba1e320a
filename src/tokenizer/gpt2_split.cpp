#include "gpt2_split.h"

#include "lmtp/base/utf8.h"

namespace lmtp::tokenizer {
namespace {

// The length of a contraction ('s, 'll, ...) at `pos`, or 0.
std::size_t contraction_length(std::string_view text, std::size_t pos) {
  const char first = pos + 1 < text.size() ? text[pos + 1] : '\0';
  const char second = pos + 2 < text.size() ? text[pos + 2] : '\0';
  switch (first) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return second == 'e' ? 3 : 0;
    case 'l':
      return second == 'l' ? 3 : 0;
    default:
      return 0;
  }
}

// \s+(?!\S)|\s+ : the last space of a run belongs to the word that follows.
std::size_t spaces_end(const CharClasses& classes, std::string_view text, std::size_t pos) {
  const std::size_t first_end = pos + code_point_at(text, pos).num_bytes;
  const std::size_t run_end = classes.run_end(text, pos, CharClass::kSpace);
  if (run_end == text.size() || run_end == first_end) return run_end;
  std::size_t last = run_end - 1;
  while ((static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
  return last;
}

}  // namespace

std::size_t gpt2_word_end(const CharClasses& classes, std::string_view text, std::size_t pos) {
  if (text[pos] == '\'') {
    if (const std::size_t length = contraction_length(text, pos); length > 0) return pos + length;
  }
  const std::size_t start = text[pos] == ' ' ? pos + 1 : pos;
  if (start == text.size()) return start;
  const CodePoint first = code_point_at(text, start);
  const CharClass run = classes.of(first.value);
  if (run == CharClass::kSpace) return spaces_end(classes, text, pos);
  return classes.run_end(text, start + first.num_bytes, run);
}

}  // namespace lmtp::tokenizer
