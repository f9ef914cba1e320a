#include "lmtp/cache/sequence_blocks.h"

#include <algorithm>
#include <utility>

#include "lmtp/base/check.h"

namespace lmtp::cache {
namespace {

// Whether a sequence may go on writing in the partial block of the match: nobody else does, and all
// of its tokens match.
bool is_taken_over(const PrefixCache& cache, const PrefixMatch& match) {
  return match.partial != kNoBlock && cache.pool().is_evictable(match.partial) &&
         cache.num_tokens(match.partial) == match.num_partial;
}

}  // namespace

int SequenceBlocks::num_to_take(const PrefixCache& cache, const PrefixMatch& match,
                                int num_tokens) {
  const auto is_evictable = [&](BlockId block) { return cache.pool().is_evictable(block); };
  int num_taken = static_cast<int>(std::ranges::count_if(match.blocks, is_evictable));
  if (match.partial != kNoBlock && is_evictable(match.partial)) ++num_taken;
  const int num_held =
      static_cast<int>(match.blocks.size()) + (is_taken_over(cache, match) ? 1 : 0);
  return blocks_for(num_tokens) - num_held + num_taken;
}

BlockMove SequenceBlocks::take(PrefixCache& cache, const PrefixMatch& match) {
  LMTP_CHECK(ids_.empty() && num_full_ == 0, ids_.size(), num_full_);
  for (const BlockId block : match.blocks) {
    cache.pool().pin(block);
    ids_.push_back(block);
  }
  if (!match.host.empty()) cache.fetch(match.host, ids_);
  num_full_ = ids_.size();
  if (match.partial == kNoBlock) return {};
  is_partial_indexed_ = is_taken_over(cache, match);
  cache.pool().pin(match.partial);
  if (is_partial_indexed_) {
    ids_.push_back(match.partial);
    return {};
  }
  ids_.push_back(cache.allocate());
  LMTP_CHECK(ids_.back() != kNoBlock, match.partial);
  return {match.partial, ids_.back()};
}

bool SequenceBlocks::grow(PrefixCache& cache, int num_blocks) {
  const std::size_t had = ids_.size();
  while (size() < num_blocks) {
    const BlockId block = cache.allocate();
    if (block == kNoBlock) {
      for (; ids_.size() > had; ids_.pop_back()) cache.pool().unpin(ids_.back(), false);
      return false;
    }
    ids_.push_back(block);
  }
  return true;
}

SequenceBlocks::Range SequenceBlocks::index_new(PrefixCache& cache, int name_space,
                                                std::span<const TokenId> computed, bool with_tail) {
  Range replaced;
  while (num_full_ * kBlockSize < computed.size()) {
    const std::size_t at = num_full_;
    const auto held = computed.subspan(at * kBlockSize);
    const bool is_full = held.size() >= kBlockSize;
    if (!is_full && !with_tail) break;
    const auto tokens = is_full ? held.first(kBlockSize) : held;
    const BlockId own = ids_[at];
    const BlockId parent = at == 0 ? PrefixCache::root(name_space) : ids_[at - 1];
    // A partial node may have grown since it was indexed.
    const BlockId node = std::exchange(is_partial_indexed_, false)
                             ? cache.extend(own, tokens)
                             : cache.insert(parent, tokens, own);
    if (node == kNoBlock) break;
    if (!is_full) {
      // Another sequence may be writing in the partial node of the same tokens: ours is no node.
      is_partial_indexed_ = node == own;
      break;
    }
    ++num_full_;
    if (node == own) continue;
    // A node that was the sequence's own has no children: what is replaced comes before all such.
    LMTP_CHECK(replaced.end == replaced.begin || replaced.end == at, at, replaced.end);
    if (replaced.end == replaced.begin) replaced.begin = at;
    replaced.end = at + 1;
    cache.pool().pin(node);
    cache.pool().unpin(own, false);
    ids_[at] = node;
  }
  return replaced;
}

std::span<const TokenId> SequenceBlocks::following(const PrefixCache& cache, int name_space,
                                                   std::span<const TokenId> tokens,
                                                   int num_computed) const {
  const auto num_full = std::min(num_full_, static_cast<std::size_t>(num_computed / kBlockSize));
  const BlockId parent = num_full == 0 ? PrefixCache::root(name_space) : ids_[num_full - 1];
  return cache.following(parent, tokens.subspan(num_full * kBlockSize));
}

void SequenceBlocks::release(PrefixCache& cache) {
  cache.unpin_path(ids_);
  ids_.clear();
  num_full_ = 0;
  is_partial_indexed_ = false;
}

int SequenceBlocks::num_alone(const BlockPool& pool) const {
  return static_cast<int>(
      std::ranges::count_if(ids_, [&](BlockId block) { return pool.num_refs(block) == 1; }));
}

}  // namespace lmtp::cache
