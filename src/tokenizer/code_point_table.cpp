#include "code_point_table.h"

#include <algorithm>

#include "lmtp/base/check.h"

namespace lmtp::tokenizer {

void CodePointTable::set(CodePointRange range, std::uint8_t value) {
  std::uint16_t full_page = 0;  // shared by all pages that the range covers completely
  for (char32_t page = range.first >> 8; page <= range.last >> 8; ++page) {
    const char32_t page_first = page << 8;
    const char32_t page_last = page_first | 0xFF;
    const char32_t begin = std::max(range.first, page_first) - page_first;
    const char32_t end = std::min(range.last, page_last) - page_first + 1;
    const bool whole = begin == 0 && end == 256;
    if (whole && full_page != 0) {
      index_[page] = full_page;
      newest_owner_ = kNoOwner;
      continue;
    }
    // A page may be shared: copy it before a change, unless this index is its only user.
    if (newest_owner_ != page) {
      const Page copy = pages_[index_[page]];
      pages_.push_back(copy);
      LMTP_CHECK(pages_.size() <= UINT16_MAX, pages_.size());
      index_[page] = static_cast<std::uint16_t>(pages_.size() - 1);
      newest_owner_ = page;
    }
    std::fill(pages_.back().begin() + begin, pages_.back().begin() + end, value);
    if (whole) full_page = index_[page];
  }
}

}  // namespace lmtp::tokenizer
