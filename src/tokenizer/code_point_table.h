// CodePointTable: a two-level table of a byte for every code point.
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

  // 0 if not set. REQUIRES: code_point <= kCodePointMax.
  std::uint8_t of(char32_t code_point) const {
    return pages_[index_[code_point >> 8]][code_point & 0xFF];
  }

  // The table is smallest if ranges are set in ascending order.
  void set(CodePointRange range, std::uint8_t value);

 private:
  using Page = std::array<std::uint8_t, 256>;
  static constexpr char32_t kNoOwner = kCodePointMax;

  std::vector<std::uint16_t> index_;  // of pages_; several may share one of a single value
  std::vector<Page> pages_;           // [0] is all zeros
  char32_t newest_owner_ = kNoOwner;  // the only index that has pages_.back()
};

}  // namespace lmtp::tokenizer
