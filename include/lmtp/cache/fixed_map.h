// FixedMap: a hash map whose memory is there from the start.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "lmtp/base/check.h"

namespace lmtp::cache {

// From hashes to small values, at most as many as it was made for: no insertion takes memory.
// Pages of entries that were never used are never touched.
template <typename Value>
class FixedMap {
 public:
  explicit FixedMap(std::size_t capacity)
      : capacity_(capacity), buckets_(std::bit_ceil(capacity + 1), kNone) {
    LMTP_CHECK(capacity < kNone, capacity);
    entries_.reserve(capacity);
  }

  // Null: it is not there. Valid until it is erased.
  Value* find(std::uint64_t hash) {
    for (Index i = bucket(hash); i != kNone; i = entries_[i].next) {
      if (entries_[i].hash == hash) return &entries_[i].value;
    }
    return nullptr;
  }
  const Value* find(std::uint64_t hash) const { return const_cast<FixedMap*>(this)->find(hash); }

  // A new value where it is not there. REQUIRES: there is room.
  Value& find_or_add(std::uint64_t hash) {
    if (Value* const found = find(hash)) return *found;
    LMTP_CHECK(size_ < capacity_, size_);
    Index at = free_;
    if (at == kNone) {
      at = static_cast<Index>(entries_.size());
      entries_.emplace_back();
    } else {
      free_ = entries_[at].next;
    }
    entries_[at] = {.hash = hash, .value = {}, .next = bucket(hash)};
    bucket(hash) = at;
    ++size_;
    return entries_[at].value;
  }

  // REQUIRES: it is there.
  void erase(std::uint64_t hash) {
    Index* at = &bucket(hash);
    while (entries_.at(*at).hash != hash) at = &entries_[*at].next;
    const Index erased = *at;
    *at = entries_[erased].next;
    entries_[erased].next = free_;
    free_ = erased;
    --size_;
  }

  std::size_t size() const { return size_; }

 private:
  using Index = std::uint32_t;
  static constexpr Index kNone = std::numeric_limits<Index>::max();

  struct Entry {
    std::uint64_t hash = 0;
    Value value = {};
    Index next = kNone;  // of the same bucket, or free
  };

  Index& bucket(std::uint64_t hash) { return buckets_[hash & (buckets_.size() - 1)]; }

  const std::size_t capacity_;
  std::vector<Entry> entries_;
  std::vector<Index> buckets_;
  Index free_ = kNone;
  std::size_t size_ = 0;
};

}  // namespace lmtp::cache
