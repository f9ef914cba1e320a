// The part of PrefixCache that knows groups (KvLayout), and what must hold.
#include <algorithm>
#include <array>
#include <vector>

#include "lmtp/base/check.h"
#include "lmtp/cache/prefix_cache.h"

namespace lmtp::cache {

bool PrefixCache::has_all_groups(NodeId id) const {
  for (int group = 1; group < layout_.num_groups; ++group) {
    if (other(id, group) == kNullBlock) return false;
  }
  return true;
}

// Whether a match may use what the node has of the group, in the pool or on the host.
bool PrefixCache::is_found(NodeId id, int group) const {
  return other(id, group) != kNullBlock ||
         (host_pays_ && host_.num_total() > 0 && host_of(id, group) != kNoBlock);
}

PrefixCache::NodeId PrefixCache::node_at(const PrefixMatch& match, int run) const {
  const std::size_t at = index(run);
  const std::size_t num_in_pool = match.blocks.size();
  return at < num_in_pool ? node_of_[index(match.blocks[at])]
                          : node_of_host_[index(to_host(match.host[at - num_in_pool]))];
}

// Where the match begins in each group; false: a block is missing from there on.
bool PrefixCache::begin_windows(PrefixMatch& result) const {
  result.windows.clear();
  for (int group = 1; group < layout_.num_groups; ++group) {
    const int first = layout_.first_block(group, result.num_tokens());
    result.first[index(group)] = first;
    for (int i = result.num_blocks(); i-- > first;) {
      const NodeId id = node_at(result, i);
      if (!is_found(id, group)) return false;
      if (other(id, group) != kNullBlock) continue;
      result.windows.push_back({i, group, to_number(host_of(id, group))});
    }
  }
  return true;
}

void PrefixCache::drop_partial(PrefixMatch& match) const {
  match.partial = kNoBlock;
  match.num_partial = 0;
  if (layout_.num_groups > 1) end_in_windows(match);
}

// Shortens the match to where all groups have what is seen from there.
void PrefixCache::end_in_windows(PrefixMatch& result) const {
  if (begin_windows(result)) return;
  result.partial = kNoBlock;
  result.num_partial = 0;
  // The blocks before an end that a group has without a gap.
  std::array<int, KvLayout::kGroupsMax> runs = {};
  int best = 0;
  for (int end = 1; end <= result.num_blocks(); ++end) {
    const NodeId id = node_at(result, end - 1);
    bool is_whole = true;
    for (int group = 1; group < layout_.num_groups; ++group) {
      int& run = runs[index(group)];
      run = is_found(id, group) ? run + 1 : 0;
      is_whole &= run >= end - layout_.first_block(group, end * kBlockSize);
    }
    if (is_whole) best = end;
  }
  const auto num_in_pool = static_cast<int>(result.blocks.size());
  result.blocks.resize(index(std::min(best, num_in_pool)));
  result.host.resize(index(std::max(0, best - num_in_pool)));
  const bool is_whole = begin_windows(result);
  LMTP_CHECK(is_whole, best);
}

void PrefixCache::set_in_group(BlockId block, int group, BlockId added) {
  const NodeId id = node_of_[index(block)];
  BlockId& held = other(id, group);
  if (held == added) return;
  LMTP_CHECK(id > 0 && node(id).block == block && held == kNullBlock && !is_indexed(added), block,
             group, held, added);
  LMTP_CHECK(pool_.num_refs(block) > 0 && pool_.num_refs(added) > 0, block, added);
  held = added;
  node_of_[index(added)] = id;
}

// The node holds no block but its own. Those that a sequence holds stay its own.
void PrefixCache::drop_others(NodeId id) {
  drop_others_in_pool(id);
  if (host_.num_total() == 0) return;
  for (int group = 1; group < layout_.num_groups; ++group) {
    const BlockId held = host_of(id, group);
    if (held == kNoBlock) continue;
    set_host(id, group, kNoBlock);
    host_.free_evictable(held);
  }
}

void PrefixCache::drop_others_in_pool(NodeId id) {
  for (int group = 1; group < layout_.num_groups; ++group) {
    BlockId& held = other(id, group);
    if (held == kNullBlock) continue;
    node_of_[index(held)] = 0;
    if (pool_.is_evictable(held)) pool_.free_evictable(held);
    held = kNullBlock;
  }
}

// Where the block is not the node's own of group 0, the node goes on without it. Its group.
int PrefixCache::drop_other(NodeId id, BlockId block) {
  if (node(id).block == block) return 0;
  int group = 1;
  while (other(id, group) != block) ++group;
  other(id, group) = kNullBlock;
  node_of_[index(block)] = 0;
  return group;
}

int PrefixCache::group_of_host(NodeId id, BlockId host) const {
  for (int group = 0; group < layout_.num_groups; ++group) {
    if (host_of(id, group) == host) return group;
  }
  return -1;
}

void PrefixCache::check_invariants() const {
  LMTP_CHECK(pool_.num_free() + pool_.num_evictable() + pool_.num_pinned() + pool_.num_adapter() ==
                 pool_.num_total(),
             pool_.num_free(), pool_.num_evictable(), pool_.num_pinned(), pool_.num_adapter(),
             pool_.num_total());
  const BlockPool::Counts& stubs = pool_.stubs();
  LMTP_CHECK(stubs.free + stubs.evictable + stubs.pinned == pool_.num_stubs(), stubs.free,
             stubs.evictable, stubs.pinned, pool_.num_stubs());
  LMTP_CHECK(host_.num_free() + host_.num_evictable() == host_.num_total(), host_.num_free(),
             host_.num_evictable(), host_.num_total());
  for (BlockId block = 1; block <= pool_.num_total() + pool_.num_stubs(); ++block) {
    const NodeId id = node_of_[index(block)];
    LMTP_CHECK(id == 0 || node(id).block == block || is_other_of(id, block), block, id);
    LMTP_CHECK(!pool_.is_evictable(block) || id != 0, block);
    LMTP_CHECK(!pool_.is_free(block) || id == 0, block);
    LMTP_CHECK(pool_.adapter_of(block) == 0 || id == 0, block);
  }
  for (BlockId host = 1; host <= host_.num_total(); ++host) {
    const NodeId id = node_of_host_[index(host)];
    LMTP_CHECK(host_.is_free(host) == (id == 0), host, id);
    LMTP_CHECK(id == 0 || group_of_host(id, host) >= 0, host, id);
  }
  std::vector<int> children(nodes_.size(), 0);
  std::size_t num_full = 0;
  std::size_t num_used = 0;
  for (NodeId id = 1; id < static_cast<NodeId>(nodes_.size()); ++id) {
    check_node(id);
    num_used += node(id).num_tokens > 0 ? 1 : 0;
    num_full += node(id).num_tokens == kBlockSize ? 1 : 0;
    if (node(id).num_tokens > 0 && !is_root(node(id).parent)) ++children[index(node(id).parent)];
  }
  LMTP_CHECK(num_full == full_blocks_.size(), num_full, full_blocks_.size());
  LMTP_CHECK(num_used + free_nodes_.size() + 1 == nodes_.size(), num_used, free_nodes_.size());
  for (NodeId id = 1; id < static_cast<NodeId>(nodes_.size()); ++id) {
    LMTP_CHECK(children[index(id)] == node(id).num_children, id);
  }
}

bool PrefixCache::is_other_of(NodeId id, BlockId block) const {
  for (int group = 1; group < layout_.num_groups; ++group) {
    if (other(id, group) == block) return true;
  }
  return false;
}

void PrefixCache::check_node(NodeId id) const {
  const Node& one = node(id);
  const bool in_pool = one.block != kNoBlock;
  LMTP_CHECK((one.num_tokens > 0) == (in_pool || one.host != kNoBlock), id);
  LMTP_CHECK((one.num_tokens > 0 && in_pool) || !one.is_listed, id);
  if (one.num_tokens == 0) return;
  LMTP_CHECK(!in_pool || node_of_[index(one.block)] == id, id, one.block);
  LMTP_CHECK(one.host == kNoBlock || node_of_host_[index(one.host)] == id, id, one.host);
  if (one.num_tokens == kBlockSize) {
    LMTP_CHECK(find_full_block(one.parent, one.tokens) == id);
  } else {
    LMTP_CHECK(one.is_listed && one.host == kNoBlock, id);
  }
  for (int group = 1; group < layout_.num_groups; ++group) {
    const BlockId host = host_.num_total() > 0 ? host_of(id, group) : kNoBlock;
    LMTP_CHECK(
        host == kNoBlock || (node_of_host_[index(host)] == id && one.num_tokens == kBlockSize), id,
        group, host);
    const BlockId held = other(id, group);
    if (held == kNullBlock) continue;
    LMTP_CHECK(in_pool, id, group, held);
    LMTP_CHECK(node_of_[index(held)] == id && held != one.block, id, group, held);
    LMTP_CHECK(pool_.num_refs(held) == 0 || pool_.num_refs(one.block) > 0, id, group, held);
    LMTP_CHECK(pool_.num_refs(held) > 0 || pool_.is_evictable(held), id, group, held);
  }
  if (is_root(one.parent)) return;
  const Node& parent = node(one.parent);
  LMTP_CHECK(parent.num_tokens == kBlockSize, id, one.parent);
  LMTP_CHECK(!in_pool || parent.block != kNoBlock, id, one.parent);
  LMTP_CHECK(!in_pool || pool_.num_refs(one.block) == 0 || pool_.num_refs(parent.block) > 0, id,
             one.parent);
}

}  // namespace lmtp::cache
