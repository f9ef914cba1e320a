// Unicode's normal forms: NFC, NFD, NFKC, NFKD, with the tables of Hugging Face `tokenizers` (its
// version of Unicode is older than that of its letters).
//
// Reference: Unicode Standard Annex 15.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "code_point_table.h"

namespace lmtp::tokenizer {

enum class UnicodeForm : std::uint8_t { kNfc, kNfd, kNfkc, kNfkd };

// Immutable once made; any thread.
class UnicodeFormer {
 public:
  explicit UnicodeFormer(UnicodeForm form);

  // Whether apply() may change the text; a fast check that is false for most texts.
  bool may_change(std::string_view text) const;

  // Appends the normal form to `out`. REQUIRES: valid UTF-8.
  void apply(std::string_view text, std::string& out) const;

 private:
  void append_decomposed(char32_t c, std::u32string& out) const;
  void sort_marks(std::u32string& chars) const;
  void compose(std::u32string& chars) const;
  char32_t composed(char32_t first, char32_t second) const;  // 0: none
  // Whether the character is unchanged unless a character that is not inert follows it, and text
  // after it does not affect text before it.
  bool is_inert(char32_t c) const { return reactive_.of(c) == 0; }

  const bool composes_;
  CodePointTable combining_;  // combining classes
  CodePointTable reactive_;   // 1: not inert
  std::unordered_map<char32_t, std::u32string> decompositions_;
  std::unordered_map<std::uint64_t, char32_t> compositions_;
};

}  // namespace lmtp::tokenizer
