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
  const KvLayout& layout = cache.layout();
  const int num_written =
      std::min(layout.num_written_max, std::max(0, num_tokens - match.num_tokens()));
  const int num_runs = blocks_for(num_tokens);
  const int num_held = match.num_blocks() + (is_taken_over(cache, match) ? 1 : 0);
  int sum = 0;
  for (int group = layout.first_group(); group < layout.num_groups; ++group) {
    const auto is_taken = [&](BlockId block) {
      return cache.pool().is_evictable(cache.in_group(block, group));
    };
    const auto num_passed = static_cast<std::size_t>(match.first[static_cast<std::size_t>(group)]);
    const auto held = std::span(match.blocks).subspan(std::min(num_passed, match.blocks.size()));
    auto num_taken = static_cast<int>(std::ranges::count_if(held, is_taken));
    if (match.partial != kNoBlock && is_taken(match.partial)) ++num_taken;
    num_taken += num_runs - num_held;
    num_taken += static_cast<int>(
        group == 0 ? static_cast<std::ptrdiff_t>(match.host.size())
                   : std::ranges::count(match.windows, group, &PrefixMatch::OnHost::group));
    const int num_copied = match.partial != kNoBlock ? 1 : 0;
    sum += std::min(num_taken, layout.num_held_max(group, num_taken, num_written) + num_copied);
  }
  return sum;
}

void SequenceBlocks::begin(const PrefixCache& cache) {
  LMTP_CHECK(ids_.empty() && num_full_ == 0, ids_.size(), num_full_);
  num_groups_ = cache.layout().num_groups;
  first_ = {};
  if (num_groups_ > 1) ids_.reserve(num_reserved_ * static_cast<std::size_t>(num_groups_));
}

BlockMove SequenceBlocks::take(PrefixCache& cache, const PrefixMatch& match, bool returns) {
  begin(cache);
  first_ = match.first;
  for (int run = 0; run < static_cast<int>(match.blocks.size()); ++run) {
    for (int group = 0; group < num_groups_; ++group) {
      BlockId block = kNullBlock;
      if (run >= first(group)) {
        block = cache.in_group(match.blocks[static_cast<std::size_t>(run)], group);
        if (block != kNullBlock) cache.pool().pin(block);  // else the host has it
      }
      ids_.push_back(block);
    }
  }
  is_partial_indexed_ = is_taken_over(cache, match);
  if (match.partial != kNoBlock) {
    for (int group = 0; group < num_groups_; ++group) {
      cache.pool().pin(cache.in_group(match.partial, group));
    }
  }
  if (match.num_on_host() > 0) cache.fetch(match, ids_);
  num_runs_ = match.num_blocks();
  num_full_ = static_cast<std::size_t>(num_runs_);
  num_shared_ = returns ? std::min(num_shared_, num_runs_) : num_runs_;
  if (match.partial == kNoBlock) return {};
  ++num_runs_;
  for (int group = 0; group < num_groups_; ++group) {
    ids_.push_back(is_partial_indexed_ ? cache.in_group(match.partial, group)
                                       : cache.allocate(group));
    LMTP_CHECK(ids_.back() != kNoBlock, match.partial);
  }
  return is_partial_indexed_ ? BlockMove{} : BlockMove{match.partial, (*this)[num_full_]};
}

bool SequenceBlocks::grow(PrefixCache& cache, int num_runs) {
  if (num_runs_ == 0) begin(cache);
  const std::size_t had = ids_.size();
  const auto size = static_cast<std::size_t>(num_runs) * static_cast<std::size_t>(num_groups_);
  while (ids_.size() < size) {
    const auto group = static_cast<int>(ids_.size() % static_cast<std::size_t>(num_groups_));
    const BlockId block = cache.allocate(group);
    if (block == kNoBlock) {
      for (; ids_.size() > had; ids_.pop_back()) cache.pool().unpin(ids_.back(), false);
      return false;
    }
    ids_.push_back(block);
  }
  num_runs_ = num_runs;
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
    const BlockId own = (*this)[at];
    const BlockId parent = at == 0 ? PrefixCache::root(name_space) : (*this)[at - 1];
    // A partial node may have grown since it was indexed.
    const BlockId node = std::exchange(is_partial_indexed_, false)
                             ? cache.extend(own, tokens)
                             : cache.insert(parent, tokens, own);
    if (node == kNoBlock) break;
    if (!is_full) {
      // Another sequence may be writing in the partial node of the same tokens: ours is no node.
      is_partial_indexed_ = node == own;
      if (node == own) index_others(cache, node, at);
      break;
    }
    ++num_full_;
    if (node == own) {
      index_others(cache, node, at);
      continue;
    }
    // A node that was the sequence's own has no children: what is replaced comes before all such.
    LMTP_CHECK(replaced.end == replaced.begin || replaced.end == at, at, replaced.end);
    if (replaced.end == replaced.begin) replaced.begin = at;
    replaced.end = at + 1;
    num_shared_ = static_cast<int>(replaced.end);
    cache.pool().pin(node);
    cache.pool().unpin(own, false);
    ids_[this->at(at, 0)] = node;
    index_others(cache, node, at);
  }
  return replaced;
}

// The blocks of the other groups go with that of group 0, which is `node`: what it has of them
// takes the place of the sequence's own, and what it has not it gets.
void SequenceBlocks::index_others(PrefixCache& cache, BlockId node, std::size_t run) {
  for (int group = 1; group < num_groups_; ++group) {
    BlockId& own = ids_[at(run, group)];
    if (own == kNullBlock) continue;  // it was passed
    const BlockId known = cache.in_group(node, group);
    if (known == kNullBlock || known == own) {
      cache.set_in_group(node, group, own);
    } else {
      cache.pool().pin(known);
      cache.pool().unpin(own, false);
      own = known;
    }
  }
}

void SequenceBlocks::pass_windows(PrefixCache& cache, int num_computed) {
  for (int group = 1; group < num_groups_; ++group) {
    int& first = first_[static_cast<std::size_t>(group)];
    const int end = std::min(cache.layout().first_kept(group, num_computed), num_runs_);
    for (; first < end; ++first) {
      BlockId& block = ids_[at(static_cast<std::size_t>(first), group)];
      const bool is_kept = cache.is_indexed(block);
      if (first < num_shared_ || cache.layout().is_before_checkpoint(group, first)) {
        cache.pool().unpin(block, is_kept);
      } else {
        cache.pool().unpin_passed(block, is_kept);
      }
      block = kNullBlock;
    }
  }
}

std::span<const TokenId> SequenceBlocks::following(const PrefixCache& cache, int name_space,
                                                   std::span<const TokenId> tokens,
                                                   int num_computed) const {
  const auto num_full = std::min(num_full_, static_cast<std::size_t>(num_computed / kBlockSize));
  const BlockId parent = num_full == 0 ? PrefixCache::root(name_space) : (*this)[num_full - 1];
  return cache.following(parent, tokens.subspan(num_full * kBlockSize));
}

void SequenceBlocks::release(PrefixCache& cache) {
  cache.unpin_path(ids_);
  ids_.clear();
  num_runs_ = 0;
  first_ = {};
  num_full_ = 0;
  is_partial_indexed_ = false;
}

int SequenceBlocks::num_held(const KvLayout& layout) const {
  int sum = 0;
  for (int group = layout.first_group(); group < num_groups_; ++group) {
    sum += num_runs_ - first(group);
  }
  return sum;
}

int SequenceBlocks::num_alone(const BlockPool& pool) const {
  return static_cast<int>(std::ranges::count_if(
      ids_, [&](BlockId block) { return pool.num_refs(block) == 1 && !pool.is_stub(block); }));
}

int SequenceBlocks::num_more(const KvLayout& layout, int num_tokens, int num_written) const {
  const int num_runs = std::max(num_runs_, blocks_for(num_tokens));
  int sum = 0;
  for (int group = layout.first_group(); group < layout.num_groups; ++group) {
    const int num_held = num_runs_ - first(group);
    const int most = layout.num_held_max(group, num_runs - first(group), num_written);
    sum += std::max(0, most - num_held);
  }
  return sum;
}

}  // namespace lmtp::cache
