// Properties of characters, in the Unicode version of Hugging Face `tokenizers`.
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

// "L", "Lu", "Nd", ...; 0 for an unknown category.
CategorySet categories_named(std::string_view name);

// The characters of \p{...} in Oniguruma: a category, a script ("Han") or a few more names,
// case-insensitive. Sorted, none touching the next; empty for an unknown name.
std::vector<CodePointRange> property_named(std::string_view name);

// Sorted, none touching the next.
std::vector<CodePointRange> ranges_of(CategorySet categories);

// Sorts and merges the ranges.
std::vector<CodePointRange> merged(std::vector<CodePointRange> ranges);
// All other code points. REQUIRES: sorted, none touching the next.
std::vector<CodePointRange> complement(std::span<const CodePointRange> ranges);

std::span<const CodePointRange> space_ranges();        // \s
std::span<const CodePointRange> word_ranges();         // \w of Rust's regex
std::span<const CodePointRange> digit_ranges();        // what the pre-tokenizer Digits splits at
std::span<const CodePointRange> punctuation_ranges();  // and Punctuation

bool contains(std::span<const CodePointRange> sorted, char32_t code_point);

// Whether each non-ASCII character is in the ranges if and only if its lower case is.
// REQUIRES: sorted, none touching the next.
bool closed_under_case(std::span<const CodePointRange> ranges);

// The character itself if it has none, and for U+0130, whose lower case is two characters.
char32_t lower_case(char32_t code_point);

}  // namespace lmtp::tokenizer
