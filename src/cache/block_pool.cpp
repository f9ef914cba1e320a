#include "lmtp/cache/block_pool.h"

#include "lmtp/base/check.h"

namespace lmtp::cache {

BlockPool::BlockPool(int num_blocks, int num_stubs)
    : num_total_(num_blocks - 1),
      refs_(index(num_blocks + num_stubs), 0),
      was_shared_(refs_.size(), false),
      state_(refs_.size(), State::kFree),
      adapter_(refs_.size(), 0),
      prev_(refs_.size() + kLists),
      next_(refs_.size() + kLists) {
  LMTP_CHECK(num_blocks >= 1 && num_stubs >= 0, num_blocks, num_stubs);
  for (BlockId head = free_head(); head < free_head() + kLists; ++head) {
    prev_[index(head)] = next_[index(head)] = head;
  }
  for (BlockId block = 1; block < free_head(); ++block) {
    push_back(free_head(is_stub(block)), block);
    ++counts(block).free;
  }
}

BlockId BlockPool::take_free(bool stub) {
  const BlockId block = next_[index(free_head(stub))];
  if (block == free_head(stub)) return kNoBlock;
  remove(block);
  state_[index(block)] = State::kPinned;
  refs_[index(block)] = 1;
  was_shared_[index(block)] = false;
  --counts_[stub ? 1 : 0].free;
  ++counts_[stub ? 1 : 0].pinned;
  return block;
}

void BlockPool::pin(BlockId block) {
  LMTP_CHECK(block > kNullBlock && block < free_head(), block);
  LMTP_CHECK(!is_free(block), block);
  if (is_evictable(block)) {
    remove(block);
    --counts(block).evictable;
    ++counts(block).pinned;
    state_[index(block)] = State::kPinned;
  }
  if (++refs_[index(block)] > 1) was_shared_[index(block)] = true;
}

void BlockPool::unpin(BlockId block, bool keep) {
  release(block, keep, evictable_head(is_stub(block)));
}

void BlockPool::unpin_passed(BlockId block, bool keep) {
  release(block, keep, was_shared_[index(block)] ? evictable_head() : passed_head());
}

void BlockPool::release(BlockId block, bool keep, BlockId list) {
  LMTP_CHECK(block > kNullBlock && block < free_head(), block);
  LMTP_CHECK(refs_[index(block)] > 0, block, refs_[index(block)]);
  if (--refs_[index(block)] > 0) return;
  --counts(block).pinned;
  if (keep) {
    state_[index(block)] = State::kEvictable;
    push_back(list, block);
    ++counts(block).evictable;
  } else {
    add_free(block);
  }
}

void BlockPool::free_evictable(BlockId block) {
  LMTP_CHECK(is_evictable(block), block);
  remove(block);
  --counts(block).evictable;
  add_free(block);
}

// In front.
void BlockPool::add_free(BlockId block) {
  state_[index(block)] = State::kFree;
  push_back(next_[index(free_head(is_stub(block)))], block);
  ++counts(block).free;
}

void BlockPool::give_to_adapter(int adapter, std::span<const BlockId> blocks) {
  LMTP_CHECK(adapter >= 1, adapter);
  for (const BlockId block : blocks) {
    LMTP_CHECK(refs_[index(block)] == 1 && adapter_of(block) == 0, block, refs_[index(block)]);
    refs_[index(block)] = 0;
    state_[index(block)] = State::kAdapter;
    adapter_[index(block)] = adapter;
  }
  counts_[0].pinned -= static_cast<int>(blocks.size());
  num_adapter_ += static_cast<int>(blocks.size());
}

void BlockPool::set_idle(std::span<const BlockId> blocks, bool idle) {
  for (const BlockId block : blocks) {
    LMTP_CHECK(adapter_of(block) != 0 && is_idle(block) != idle, block, adapter_of(block));
    state_[index(block)] = idle ? State::kIdle : State::kAdapter;
    if (idle) {
      push_back(evictable_head(), block);
    } else {
      remove(block);
    }
  }
  num_idle_ += static_cast<int>(blocks.size()) * (idle ? 1 : -1);
}

void BlockPool::free_adapter(BlockId first) {
  LMTP_CHECK(is_idle(first), first);
  const int adapter = adapter_of(first);
  for (BlockId block = first; block <= num_total() && adapter_of(block) == adapter;) {
    const BlockId next = next_[index(block)];
    remove(block);
    adapter_[index(block)] = 0;
    add_free(block);
    --num_adapter_;
    --num_idle_;
    block = next;
  }
}

BlockId BlockPool::oldest_evictable(bool stub) const {
  const BlockId passed = next_[index(passed_head())];
  if (!stub && passed != passed_head()) return passed;
  const BlockId block = next_[index(evictable_head(stub))];
  return block == evictable_head(stub) ? kNoBlock : block;
}

void BlockPool::push_back(BlockId head, BlockId block) {
  const BlockId last = prev_[index(head)];
  next_[index(last)] = block;
  prev_[index(block)] = last;
  next_[index(block)] = head;
  prev_[index(head)] = block;
}

void BlockPool::remove(BlockId block) {
  next_[index(prev_[index(block)])] = next_[index(block)];
  prev_[index(next_[index(block)])] = prev_[index(block)];
}

}  // namespace lmtp::cache
