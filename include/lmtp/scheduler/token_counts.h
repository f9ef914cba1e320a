// TokenCounts: how often each token occurs in a sequence, kept up to date token by token.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "lmtp/base/ids.h"

namespace lmtp::scheduler {

// Owner: a SlotState; one thread.
class TokenCounts {
 public:
  struct Entry {
    TokenId id = 0;
    std::int32_t count = 0;
  };

  // Counts those of the tokens that are not counted yet; one before `from` has an entry, and adds
  // nothing to its count. REQUIRES: `tokens` begins with what was counted, with the same `from`.
  void update(std::span<const TokenId> tokens, std::size_t from = 0) {
    const std::size_t middle = std::clamp(from, num_counted_, tokens.size());
    add(tokens.subspan(num_counted_, middle - num_counted_), 0);
    add(tokens.subspan(middle), 1);
    num_counted_ = tokens.size();
  }
  void clear() {
    entries_.clear();
    num_counted_ = 0;
  }

  std::size_t num_counted() const { return num_counted_; }
  // The tokens that occur, in ascending order.
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  static constexpr std::size_t kInsertedMax = 64;  // more are sorted first

  // `each`: what one occurrence counts.
  void add(std::span<const TokenId> fresh, std::int32_t each) {
    if (fresh.size() > kInsertedMax) {
      merge({fresh.begin(), fresh.end()}, each);
    } else {
      for (const TokenId id : fresh) insert(id, each);
    }
  }
  void insert(TokenId id, std::int32_t each) {
    const auto at = std::ranges::lower_bound(entries_, id, {}, &Entry::id);
    if (at != entries_.end() && at->id == id) {
      at->count += each;
    } else {
      entries_.insert(at, {id, each});
    }
  }
  void merge(std::vector<TokenId> ids, std::int32_t each) {
    std::ranges::sort(ids);
    std::vector<Entry> merged;
    auto known = entries_.begin();
    for (auto id = ids.begin(); id != ids.end();) {
      while (known != entries_.end() && known->id < *id) merged.push_back(*known++);
      const bool is_known = known != entries_.end() && known->id == *id;
      Entry entry = is_known ? *known++ : Entry{*id, 0};
      for (; id != ids.end() && *id == entry.id; ++id) entry.count += each;
      merged.push_back(entry);
    }
    merged.insert(merged.end(), known, entries_.end());
    entries_ = std::move(merged);
  }

  std::vector<Entry> entries_;
  std::size_t num_counted_ = 0;
};

}  // namespace lmtp::scheduler
