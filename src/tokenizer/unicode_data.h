// What Unicode says of characters, as Hugging Face `tokenizers` knows it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace lmtp::tokenizer {

inline constexpr char32_t kCodePointMax = 0x10FFFF;

struct CodePointRange {
  char32_t first, last;
};

// A set of general categories: one bit for each, in the order of unicode_ranges.inc.
using CategorySet = std::uint32_t;

// "L", "Lu", "Nd", ...; 0 where there is no such category.
CategorySet categories_named(std::string_view name);

// What \p{...} names, as Oniguruma reads it: a category, a script ("Han") or a few more, whatever
// the case. Sorted, none touching the next; empty where there is no such name.
std::vector<CodePointRange> property_named(std::string_view name);

// Sorted, none touching the next.
std::vector<CodePointRange> ranges_of(CategorySet categories);

// The same for any ranges.
std::vector<CodePointRange> merged(std::vector<CodePointRange> ranges);
// All other code points. REQUIRES: sorted, none touching the next.
std::vector<CodePointRange> complement(std::span<const CodePointRange> ranges);

std::span<const CodePointRange> space_ranges();        // \s
std::span<const CodePointRange> word_ranges();         // \w of Rust's regex
std::span<const CodePointRange> digit_ranges();        // what the pre-tokenizer Digits splits at
std::span<const CodePointRange> punctuation_ranges();  // and Punctuation

bool contains(std::span<const CodePointRange> sorted, char32_t code_point);

// Whether each character beyond ASCII is in it where its lower case is, and the other way.
// REQUIRES: sorted, none touching the next.
bool closed_under_case(std::span<const CodePointRange> ranges);

// Itself where it has none. U+0130 alone becomes two characters: i and U+0307; it is left alone.
char32_t lower_case(char32_t code_point);

}  // namespace lmtp::tokenizer
