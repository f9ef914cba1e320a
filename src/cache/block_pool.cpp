#include "lmtp/cache/block_pool.h"

#include "lmtp/base/check.h"

namespace lmtp::cache {

BlockPool::BlockPool(int num_blocks)
    : refs_(index(num_blocks), 0),
      was_shared_(index(num_blocks), false),
      state_(index(num_blocks), State::kFree),
      adapter_(index(num_blocks), 0),
      prev_(index(num_blocks) + 3),
      next_(index(num_blocks) + 3) {
  LMTP_CHECK(num_blocks >= 1, num_blocks);
  for (const BlockId head : {free_head(), evictable_head(), passed_head()}) {
    prev_[index(head)] = next_[index(head)] = head;
  }
  for (BlockId block = 1; block < num_blocks; ++block) push_back(free_head(), block);
  num_free_ = num_total();
}

BlockId BlockPool::take_free() {
  const BlockId block = next_[index(free_head())];
  if (block == free_head()) return kNoBlock;
  remove(block);
  --num_free_;
  state_[index(block)] = State::kPinned;
  refs_[index(block)] = 1;
  was_shared_[index(block)] = false;
  ++num_pinned_;
  return block;
}

void BlockPool::pin(BlockId block) {
  LMTP_CHECK(block > kNullBlock && block <= num_total(), block);
  LMTP_CHECK(!is_free(block), block);
  if (is_evictable(block)) {
    remove(block);
    --num_evictable_;
    ++num_pinned_;
    state_[index(block)] = State::kPinned;
  }
  if (++refs_[index(block)] > 1) was_shared_[index(block)] = true;
}

void BlockPool::unpin(BlockId block, bool keep) { release(block, keep, evictable_head()); }

void BlockPool::unpin_passed(BlockId block, bool keep) {
  release(block, keep, was_shared_[index(block)] ? evictable_head() : passed_head());
}

void BlockPool::release(BlockId block, bool keep, BlockId list) {
  LMTP_CHECK(block > kNullBlock && block <= num_total(), block);
  LMTP_CHECK(refs_[index(block)] > 0, block, refs_[index(block)]);
  if (--refs_[index(block)] > 0) return;
  --num_pinned_;
  if (keep) {
    state_[index(block)] = State::kEvictable;
    push_back(list, block);
    ++num_evictable_;
  } else {
    state_[index(block)] = State::kFree;
    push_back(next_[index(free_head())], block);  // in front
    ++num_free_;
  }
}

void BlockPool::free_evictable(BlockId block) {
  LMTP_CHECK(is_evictable(block), block);
  remove(block);
  --num_evictable_;
  state_[index(block)] = State::kFree;
  push_back(next_[index(free_head())], block);  // in front
  ++num_free_;
}

void BlockPool::give_to_adapter(int adapter, std::span<const BlockId> blocks) {
  LMTP_CHECK(adapter >= 1, adapter);
  for (const BlockId block : blocks) {
    LMTP_CHECK(refs_[index(block)] == 1 && adapter_of(block) == 0, block, refs_[index(block)]);
    refs_[index(block)] = 0;
    state_[index(block)] = State::kAdapter;
    adapter_[index(block)] = adapter;
  }
  num_pinned_ -= static_cast<int>(blocks.size());
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
    state_[index(block)] = State::kFree;
    adapter_[index(block)] = 0;
    push_back(next_[index(free_head())], block);  // in front
    ++num_free_;
    --num_adapter_;
    --num_idle_;
    block = next;
  }
}

BlockId BlockPool::oldest_evictable() const {
  if (const BlockId passed = next_[index(passed_head())]; passed != passed_head()) return passed;
  const BlockId block = next_[index(evictable_head())];
  return block == evictable_head() ? kNoBlock : block;
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
