// BlockPool: the state of each block of the paged KV cache. Ids and counts only; no memory.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "lmtp/base/ids.h"

namespace lmtp::cache {

// Every block but kNullBlock is in one of these states:
//   free       unused; its content means nothing
//   pinned     referenced num_refs() times by running sequences
//   evictable  unreferenced, but kept for the prefix cache; in order of last use (LRU), those that
//              were passed before all others
//   adapter    holds weights of an adapter, which is in use; or which is idle: then all its blocks
//              are in that order as well, next to each other
// so free + evictable + pinned + adapter == total always (the leak equation).
//
// Behind the blocks there may be stubs, which are as blocks but that no memory belongs to them
// (KvLayout): they are in the same states, in lists of their own, and counted apart.
//
// Arrays and three intrusive lists; every operation on a block is O(1). Owner: the PrefixCache's
// owner, the scheduler. One thread.
class BlockPool {
 public:
  struct Counts {
    int free = 0;
    int evictable = 0;
    int pinned = 0;
  };

  // REQUIRES: num_blocks >= 1; block 0 is kNullBlock and is never handed out.
  explicit BlockPool(int num_blocks, int num_stubs = 0);

  // The block freed last, else the lowest never used, now pinned once; kNoBlock if none is free.
  // `stub`: of the stubs.
  BlockId take_free(bool stub = false);

  // One more reference; an evictable block becomes pinned. REQUIRES: not free.
  void pin(BlockId block);

  // One reference less. At zero the block becomes evictable (most recently used) if `keep` is set,
  // else free. REQUIRES: pinned.
  void unpin(BlockId block, bool keep);

  // As unpin(block, keep), of a block that is less likely to be used again than all others: it
  // becomes evictable before them, unless two have had it pinned at a time.
  void unpin_passed(BlockId block, bool keep);

  // Whether there is one that was passed, which oldest_evictable() gives.
  bool has_passed() const { return next_[index(passed_head())] != passed_head(); }

  // REQUIRES: evictable.
  void free_evictable(BlockId block);

  // The one passed first; else the least recently used block that is evictable, or of an idle
  // adapter; kNoBlock if there is none. `stub`: of the stubs.
  BlockId oldest_evictable(bool stub = false) const;

  // The blocks become those of an adapter that is in use. REQUIRES: adapter >= 1, and has none;
  // each block is pinned once, by the caller.
  void give_to_adapter(int adapter, std::span<const BlockId> blocks);
  // REQUIRES: all blocks of one adapter, in the order in which they were given, and it is not so.
  void set_idle(std::span<const BlockId> blocks, bool idle);
  // The adapter's blocks become free. REQUIRES: it is idle, and this is its first block.
  void free_adapter(BlockId first);

  int num_refs(BlockId block) const { return refs_[index(block)]; }
  bool is_evictable(BlockId block) const { return state_[index(block)] == State::kEvictable; }
  bool is_free(BlockId block) const { return state_[index(block)] == State::kFree; }
  // 0: it is no adapter's.
  int adapter_of(BlockId block) const { return adapter_[index(block)]; }
  bool is_idle(BlockId block) const { return state_[index(block)] == State::kIdle; }

  bool is_stub(BlockId block) const { return block > num_total_; }

  // Without stubs, and of these alone.
  int num_total() const { return num_total_; }
  int num_free() const { return counts_[0].free; }
  int num_evictable() const { return counts_[0].evictable; }
  int num_pinned() const { return counts_[0].pinned; }
  int num_stubs() const { return static_cast<int>(refs_.size()) - 1 - num_total_; }
  const Counts& stubs() const { return counts_[1]; }
  int num_adapter() const { return num_adapter_; }
  int num_idle() const { return num_idle_; }  // of those

 private:
  enum class State : unsigned char { kFree, kPinned, kEvictable, kAdapter, kIdle };

  static std::size_t index(BlockId block) { return static_cast<std::size_t>(block); }
  void push_back(BlockId head, BlockId block);  // or before a block of a list
  void remove(BlockId block);

  void release(BlockId block, bool keep, BlockId list);
  void add_free(BlockId block);
  Counts& counts(BlockId block) { return counts_[is_stub(block) ? 1 : 0]; }

  // Circular lists: free, evictable or idle, those two of stubs, and passed; their sentinels are
  // indices behind the blocks.
  static constexpr int kLists = 5;
  BlockId free_head(bool stub = false) const {
    return static_cast<BlockId>(refs_.size()) + (stub ? 2 : 0);
  }
  BlockId evictable_head(bool stub = false) const { return free_head(stub) + 1; }
  BlockId passed_head() const { return static_cast<BlockId>(refs_.size()) + 4; }

  int num_total_;
  std::vector<int> refs_;
  std::vector<bool> was_shared_;  // pinned more than once at a time, since it was taken
  std::vector<State> state_;
  std::vector<int> adapter_;
  std::vector<BlockId> prev_;
  std::vector<BlockId> next_;
  std::array<Counts, 2> counts_;  // [blocks, stubs]
  int num_adapter_ = 0;
  int num_idle_ = 0;
};

}  // namespace lmtp::cache
