// TokenCounts: how often each token occurs in a sequence, kept up to date token by token.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lmtp/base/ids.h"

namespace lmtp::scheduler {

// Owner: a Sequence; one thread.
class TokenCounts {
 public:
  struct Entry {
    TokenId id = 0;
    std::int32_t count = 0;
  };

  // Counts those of the tokens that are not counted yet. REQUIRES: `tokens` begins with what was
  // counted.
  void update(std::span<const TokenId> tokens) {
    for (; num_counted_ < tokens.size(); ++num_counted_) {
      const TokenId id = tokens[num_counted_];
      const auto at = std::ranges::lower_bound(entries_, id, {}, &Entry::id);
      if (at != entries_.end() && at->id == id) {
        ++at->count;
      } else {
        entries_.insert(at, {id, 1});
      }
    }
  }
  void clear() {
    entries_.clear();
    num_counted_ = 0;
  }

  std::size_t num_counted() const { return num_counted_; }
  // Of tokens that occur, ascending ids.
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
  std::size_t num_counted_ = 0;
};

}  // namespace lmtp::scheduler
