// UTF-8 as Python and Hugging Face read it. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lmtp {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

enum class Utf8Status {
  kWhole,    // a complete character
  kPrefix,   // an incomplete character at the end of the text
  kInvalid,  // bytes that begin no character
};

struct Utf8Step {
  Utf8Status status = Utf8Status::kWhole;
  // Of the character, the prefix, or the maximal subpart of an invalid sequence.
  std::size_t num_bytes = 0;
};

// Decodes the front of `text`. An invalid part ends before the first byte that cannot continue it
// ("maximal subpart", Unicode 16 section 3.9), which is what Python's "replace" replaces by one
// U+FFFD. REQUIRES: !text.empty().
Utf8Step utf8_step(std::string_view text);

// Appends `text` to `out`, each invalid part as U+FFFD; a prefix at the end counts as invalid.
void append_valid_utf8(std::string_view text, std::string& out);

// Whether all of `text` is valid UTF-8.
bool is_utf8(std::string_view text);

// The characters of UTF-8 text: its bytes that continue none.
std::size_t num_characters(std::string_view text);

// Appends one character. REQUIRES: a code point that is no surrogate.
void append_utf8(char32_t code_point, std::string& out);

// The code point at `text[pos]`, and its length.
// REQUIRES: `text` is valid UTF-8; pos < text.size() is the start of a character.
struct CodePoint {
  char32_t value;
  std::size_t num_bytes;
};
inline CodePoint code_point_at(std::string_view text, std::size_t pos) {
  const auto byte = [&](std::size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[pos + i]));
  };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F),
          4};
}

}  // namespace lmtp
