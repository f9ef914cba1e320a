// CodePointTable: a byte for every code point, in pages, so that it stays small.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "unicode_data.h"

namespace lmtp::tokenizer {

// Filled once, then only read: any thread.
class CodePointTable {
 public:
  CodePointTable() : index_((kCodePointMax >> 8) + 1, 0), pages_(1) {}

  // 0 where nothing was set. REQUIRES: code_point <= kCodePointMax.
  std::uint8_t of(char32_t code_point) const {
    return pages_[index_[code_point >> 8]][code_point & 0xFF];
  }

  // Ascending ranges make the smallest table.
  void set(CodePointRange range, std::uint8_t value);

 private:
  using Page = std::array<std::uint8_t, 256>;
  static constexpr char32_t kNobody = kCodePointMax;

  std::vector<std::uint16_t> index_;  // of pages_; several may share one of a single value
  std::vector<Page> pages_;           // [0] is all zeros
  char32_t newest_owner_ = kNobody;   // the only index that has pages_.back()
};

}  // namespace lmtp::tokenizer
