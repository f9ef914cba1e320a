// SequenceBlocks: the blocks that hold the keys and values of one sequence.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/cache/prefix_cache.h"

namespace lmtp::cache {

inline int blocks_for(int num_tokens) { return (num_tokens + kBlockSize - 1) / kBlockSize; }

// Block i holds the tokens [i * kBlockSize, (i + 1) * kBlockSize) in every layer. The sequence has
// one reference on each. The first num_indexed() are nodes of the prefix cache; the others are the
// sequence's alone, and so is the tail of a partial node that it goes on writing.
//
// Owner: a sequence; the cache's thread. All calls take the same cache, which outlives the blocks.
// The owner calls release() where the cache goes on without the sequence.
class SequenceBlocks {
 public:
  SequenceBlocks() = default;
  SequenceBlocks(SequenceBlocks&&) = default;
  SequenceBlocks& operator=(SequenceBlocks&&) = default;

  // Blocks that take() and extend() to num_tokens would take of those that are free, evictable or
  // an idle adapter's.
  static int num_to_take(const PrefixCache& cache, const PrefixMatch& match, int num_tokens);

  // Begins with what was matched. Returns what is to be copied before anything is written: the
  // first match.num_partial tokens of block `from`, which stays pinned for the caller; kNoBlock
  // where the sequence goes on in the partial block itself, or there is none.
  // REQUIRES: empty(); nothing has changed since the match; there are num_to_take() blocks.
  BlockMove take(PrefixCache& cache, const PrefixMatch& match);

  // Adds blocks until there are enough for num_tokens: all of them, or none and false.
  bool extend(PrefixCache& cache, int num_tokens) {
    return blocks_for(num_tokens) <= size() || grow(cache, blocks_for(num_tokens));
  }

  // Adds the blocks of the computed tokens that have become full to the cache; `with_tail`: the
  // last, partial one too. Where the cache has a full block of the same tokens already, the
  // sequence uses that instead of its own: both hold the same bits by the numerics contract.
  // Returns the range of the blocks that were so replaced.
  struct Range {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  Range index(PrefixCache& cache, int name_space, std::span<const TokenId> computed,
              bool with_tail) {
    // Most steps fill no block.
    const std::size_t num_next = (num_full_ + 1) * kBlockSize;
    if (!with_tail && computed.size() < num_next) return {};
    return index_new(cache, name_space, computed, with_tail);
  }

  // What another text of the cache has after these tokens, as PrefixCache::following(). REQUIRES:
  // the first num_computed have been computed, and the full blocks of these indexed.
  std::span<const TokenId> following(const PrefixCache& cache, int name_space,
                                     std::span<const TokenId> tokens, int num_computed) const;

  // Unpins all blocks. Indexed ones stay in the cache until they are evicted.
  void release(PrefixCache& cache);

  const std::vector<BlockId>& ids() const { return ids_; }
  BlockId operator[](std::size_t index) const { return ids_[index]; }
  int size() const { return static_cast<int>(ids_.size()); }
  bool empty() const { return ids_.empty(); }
  int num_indexed() const { return static_cast<int>(num_full_) + (is_partial_indexed_ ? 1 : 0); }
  // Those that nobody else has a reference on.
  int num_alone(const BlockPool& pool) const;

  // Memory, in blocks.
  void reserve(std::size_t num_blocks) { ids_.reserve(num_blocks); }
  std::size_t capacity() const { return ids_.capacity(); }

 private:
  bool grow(PrefixCache& cache, int num_blocks);
  Range index_new(PrefixCache& cache, int name_space, std::span<const TokenId> computed,
                  bool with_tail);

  std::vector<BlockId> ids_;
  std::size_t num_full_ = 0;         // leading blocks that are full nodes of the cache
  bool is_partial_indexed_ = false;  // the one after them is a node, too
};

}  // namespace lmtp::cache
