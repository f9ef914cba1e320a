// SequenceBlocks: the blocks that hold the keys and values of one sequence.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/kv_layout.h"
#include "lmtp/cache/prefix_cache.h"

namespace lmtp::cache {

inline int blocks_for(int num_tokens) { return (num_tokens + kBlockSize - 1) / kBlockSize; }

// Run i is the tokens [i * kBlockSize, (i + 1) * kBlockSize); for each group of layers (KvLayout)
// it has a block, or kNullBlock where it was passed. The sequence has one reference on each. The
// first num_indexed() runs are nodes of the prefix cache; the others are the sequence's alone, and
// so is the tail of a partial node that it goes on writing.
//
// Owner: a sequence; the cache's thread. All calls take the same cache, which outlives the blocks.
// The owner calls release() where the cache goes on without the sequence.
class SequenceBlocks {
 public:
  SequenceBlocks() = default;
  SequenceBlocks(SequenceBlocks&&) = default;
  SequenceBlocks& operator=(SequenceBlocks&&) = default;

  // The most blocks, of those that are free, evictable or an idle adapter's, that take() takes, and
  // extend() up to num_tokens, where pass() follows the steps.
  static int num_to_take(const PrefixCache& cache, const PrefixMatch& match, int num_tokens);

  // Begins with what was matched. Returns what is to be copied before anything is written: the
  // first match.num_partial tokens of block `from`; kNoBlock where the sequence goes on in the
  // partial block itself, or there is none. It is the one of group 0: of the others in_group() says
  // which goes to which. The sources stay pinned for the caller.
  // `returns`: the sequence has been here before, and what it matches is its own.
  // REQUIRES: empty(); nothing has changed since the match; there are num_to_take() blocks.
  BlockMove take(PrefixCache& cache, const PrefixMatch& match, bool returns = false);

  // Adds runs until there are enough for num_tokens: all of them, or none and false.
  bool extend(PrefixCache& cache, int num_tokens) {
    return blocks_for(num_tokens) <= num_runs_ || grow(cache, blocks_for(num_tokens));
  }

  // Adds the runs of the computed tokens that have become full to the cache; `with_tail`: the
  // last, partial one too. Where the cache has a full block of the same tokens already, the
  // sequence uses that instead of its own: both hold the same bits by the numerics contract.
  // Returns the range of the runs whose blocks were so replaced.
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

  // Gives back what lies wholly before the windows of the groups and KvLayout::kKeptBefore, where
  // num_computed tokens are in the cache and the sequence goes on from there. What this sequence
  // alone has used is evicted first, but for the blocks before a checkpoint (the idea of two
  // queues: 2Q, Johnson & Shasha 1994): a prompt that others share stays, and so do places to go on
  // from.
  void pass(PrefixCache& cache, int num_computed) {
    if (num_groups_ > 1) pass_windows(cache, num_computed);
  }

  // What another text of the cache has after these tokens, as PrefixCache::following(). REQUIRES:
  // the first num_computed have been computed, and the full blocks of these indexed.
  std::span<const TokenId> following(const PrefixCache& cache, int name_space,
                                     std::span<const TokenId> tokens, int num_computed) const;

  // Unpins all blocks. Indexed ones stay in the cache until they are evicted.
  void release(PrefixCache& cache);

  // [size(), groups].
  const std::vector<BlockId>& ids() const { return ids_; }
  // The block of a run in group 0, and in any.
  BlockId operator[](std::size_t run) const { return in_group(run, 0); }
  BlockId in_group(std::size_t run, int group) const { return ids_[at(run, group)]; }
  int num_groups() const { return num_groups_; }
  int size() const { return num_runs_; }
  bool empty() const { return num_runs_ == 0; }
  // The first run that a group has, and how many blocks, stubs aside, all have together.
  int first(int group) const { return first_[static_cast<std::size_t>(group)]; }
  int num_held(const KvLayout& layout) const;
  int num_indexed() const { return static_cast<int>(num_full_) + (is_partial_indexed_ ? 1 : 0); }
  // Those of them that nobody else has a reference on.
  int num_alone(const BlockPool& pool) const;

  // The most blocks that it will take in addition to come to num_tokens, of which so many are
  // written before pass() follows.
  int num_more(const KvLayout& layout, int num_tokens, int num_written) const;

  // Memory, in runs.
  void reserve(std::size_t num_runs) {
    num_reserved_ = num_runs;
    ids_.reserve(num_runs * static_cast<std::size_t>(num_groups_));
  }
  std::size_t capacity() const {
    return std::max(num_reserved_, ids_.capacity() / static_cast<std::size_t>(num_groups_));
  }

 private:
  std::size_t at(std::size_t run, int group) const {
    return run * static_cast<std::size_t>(num_groups_) + static_cast<std::size_t>(group);
  }
  void begin(const PrefixCache& cache);
  bool grow(PrefixCache& cache, int num_runs);
  Range index_new(PrefixCache& cache, int name_space, std::span<const TokenId> computed,
                  bool with_tail);
  void index_others(PrefixCache& cache, BlockId node, std::size_t run);
  void pass_windows(PrefixCache& cache, int num_computed);

  std::vector<BlockId> ids_;  // [num_runs_, num_groups_]
  int num_groups_ = 1;
  int num_runs_ = 0;
  std::size_t num_reserved_ = 0;
  std::array<int, KvLayout::kGroupsMax> first_ = {};
  std::size_t num_full_ = 0;  // leading runs that are full nodes of the cache
  // Leading ones that another sequence had made. Stays where the blocks are released.
  int num_shared_ = 0;
  bool is_partial_indexed_ = false;  // the one after them is a node, too
};

}  // namespace lmtp::cache
