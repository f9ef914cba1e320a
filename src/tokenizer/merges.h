// Merges: BPE's table of pairs to merge, and the merging of a word.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lmtp/base/ids.h"

namespace lmtp::tokenizer {

// Filled once by a loader, then only read: any thread.
class Merges {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  struct Merge {
    std::uint32_t rank = kNone;  // lower is merged earlier
    TokenId merged = -1;
  };

  void reserve(std::size_t num_merges);
  // Of a pair added twice the last merge counts, as in Hugging Face `tokenizers`.
  void add(TokenId left, TokenId right, Merge merge);
  // rank kNone if the pair does not merge.
  Merge find(TokenId left, TokenId right) const;

  // Merges the word that begins at `begin` in place: always the pair of the lowest rank, the
  // leftmost of equals, until no pair merges. O(n log n) in the worst case.
  void apply(std::vector<TokenId>& tokens, std::size_t begin = 0) const;

 private:
  struct PairSlot {
    std::uint64_t pair = kEmpty;
    Merge merge;
  };
  static constexpr std::uint64_t kEmpty = UINT64_MAX;

  static std::uint64_t pair_of(TokenId left, TokenId right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
           static_cast<std::uint32_t>(right);
  }
  static std::size_t hash_of(std::uint64_t pair) {
    pair *= 0x9E3779B97F4A7C15ULL;
    return static_cast<std::size_t>(pair ^ pair >> 32);
  }
  void grow(std::size_t num_slots);
  PairSlot& slot_of(std::uint64_t pair);
  // Each returns how many tokens are left.
  std::size_t apply_short(std::span<TokenId> word) const;
  std::size_t apply_long(std::span<TokenId> word) const;

  std::vector<PairSlot> slots_;  // open addressing, a power of two, at most half full
  std::size_t num_merges_ = 0;
};

}  // namespace lmtp::tokenizer
