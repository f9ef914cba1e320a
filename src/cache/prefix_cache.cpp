#include "lmtp/cache/prefix_cache.h"

#include <algorithm>

#include "hash.h"
#include "lmtp/base/check.h"

namespace lmtp::cache {
namespace {

int common_prefix(const TokenId* a, const TokenId* b, int limit) {
  return static_cast<int>(std::mismatch(a, a + limit, b).first - a);
}

// Of the first `count` tokens of a node below `parent`. The parent is mixed before the first token
// is: both are small, and their plain exclusive or is often that of another pair.
std::uint64_t hash_of(std::int32_t parent, const TokenId* tokens, int count) {
  std::uint64_t hash = static_cast<std::uint32_t>(parent) + 0x9E3779B97F4A7C15ULL;
  hash = mixed(hash + (static_cast<std::uint64_t>(count) << 32));
  for (int i = 0; i < count; ++i) hash = mixed(hash ^ static_cast<std::uint32_t>(tokens[i]));
  return hash;
}

std::uint64_t full_block_hash(std::int32_t parent, const TokenId* tokens) {
  return hash_of(parent, tokens, kBlockSize);
}

}  // namespace

PrefixCache::PrefixCache(BlockPool& pool, int num_host_blocks, const KvLayout& layout)
    : pool_(pool),
      layout_(layout),
      host_(num_host_blocks + 1),
      nodes_(index(layout.has_stubs ? pool.num_stubs() : pool.num_total() + num_host_blocks) + 1),
      others_(nodes_.size() * index(layout.num_groups - 1), kNullBlock),
      host_others_(num_host_blocks > 0 ? others_.size() : 0, kNoBlock),
      node_of_(index(pool.num_total() + pool.num_stubs()) + 1),
      node_of_host_(index(num_host_blocks) + 1),
      full_blocks_(nodes_.size() - 1),
      siblings_((nodes_.size() - 1) * kFamilyTokens) {
  LMTP_CHECK(num_host_blocks >= 0, num_host_blocks);
  LMTP_CHECK(
      layout.num_groups >= 1 && layout.num_groups <= KvLayout::kGroupsMax && layout.window(0) == 0,
      layout.num_groups);
  LMTP_CHECK(layout.has_stubs == (pool.num_stubs() > 0) && layout.num_with_layers() > 0,
             layout.num_groups, pool.num_stubs());
  for (auto id = static_cast<NodeId>(nodes_.size()); --id > 0;) free_nodes_.push_back(id);
  moves_.reserve(host_.num_total() > 0 ? nodes_.size() : 0);
}

PrefixCache::NodeId PrefixCache::first_sibling(NodeId parent, const TokenId* tokens,
                                               int count) const {
  const SiblingList* const list = siblings_.find(hash_of(parent, tokens, count));
  return list == nullptr ? kNoNode : list->head;
}

// A node below `parent` that begins with these tokens, and ends with them where there is one.
PrefixCache::NodeId PrefixCache::find_head(NodeId parent, const TokenId* tokens, int count) const {
  const NodeId head = first_sibling(parent, tokens, count);
  if (head == kNoNode) return kNoNode;
  const bool same =
      node(head).parent == parent && std::equal(tokens, tokens + count, node(head).tokens);
  return same ? head : kNoNode;
}

PrefixCache::NodeId PrefixCache::find_full_block(NodeId parent, const TokenId* tokens) const {
  const NodeId* const found = full_blocks_.find(full_block_hash(parent, tokens));
  if (found == nullptr) return kNoNode;
  const bool same =
      node(*found).parent == parent && std::equal(tokens, tokens + kBlockSize, node(*found).tokens);
  return same ? *found : kNoNode;
}

bool PrefixCache::is_evictable_partial(NodeId id) const {
  return node(id).num_tokens < kBlockSize && pool_.is_evictable(node(id).block);
}

PrefixMatch PrefixCache::match(int name_space, std::span<const TokenId> tokens) const {
  PrefixMatch result;
  NodeId parent = root(name_space);
  std::size_t done = 0;
  while (done + kBlockSize <= tokens.size()) {
    const NodeId id = find_full_block(parent, tokens.data() + done);
    if (id == kNoNode || (node(id).block == kNoBlock && !host_pays_)) break;
    if (node(id).block != kNoBlock) {
      result.blocks.push_back(node(id).block);
    } else {
      result.host.push_back(to_number(node(id).host));
    }
    parent = id;
    done += kBlockSize;
  }
  // Nothing below what the host alone has is in the pool.
  if (done < tokens.size() && result.host.empty()) {
    match_partial(parent, tokens.subspan(done), result);
  }
  if (layout_.num_groups > 1) end_in_windows(result);
  return result;
}

// Of blocks in the pool.
void PrefixCache::match_partial(NodeId parent, std::span<const TokenId> tokens,
                                PrefixMatch& result) const {
  const int rest = static_cast<int>(std::min<std::size_t>(tokens.size(), kBlockSize));
  const TokenId* const begin = tokens.data();
  NodeId at = rest < kFamilyTokens ? kNoNode : first_sibling(parent, begin, kFamilyTokens);
  for (; at != kNoNode; at = node(at).next[kFamilyTokens - 1]) {
    const Node& one = node(at);
    if (one.parent != parent || !has_all_groups(at)) continue;
    const int common = common_prefix(begin, one.tokens, std::min(rest, one.num_tokens));
    // Of equal matches, one that can be taken over in place saves a copy.
    const bool in_place = common == one.num_tokens && pool_.is_evictable(one.block);
    if (common > result.num_partial || (common == result.num_partial && in_place)) {
      result.partial = one.block;
      result.num_partial = common;
    }
  }
  for (int count = std::min(rest, kFamilyTokens - 1); count > result.num_partial; --count) {
    const NodeId head = find_head(parent, begin, count);
    if (head == kNoNode || node(head).block == kNoBlock || !has_all_groups(head)) continue;
    result.partial = node(head).block;
    result.num_partial = count;
  }
}

std::span<const TokenId> PrefixCache::following(BlockId parent,
                                                std::span<const TokenId> tokens) const {
  if (tokens.empty() || tokens.size() >= kBlockSize) return {};
  const NodeId above = parent_of(parent);
  const int count = std::min(static_cast<int>(tokens.size()), kFamilyTokens);
  NodeId at = first_sibling(above, tokens.data(), count);
  for (int i = 0; i < kFollowingMax && at != kNoNode; ++i, at = node(at).next[count - 1]) {
    const Node& one = node(at);
    const std::span<const TokenId> text(one.tokens, index(one.num_tokens));
    if (one.parent != above || text.size() <= tokens.size()) continue;
    if (std::ranges::equal(text.first(tokens.size()), tokens)) return text.subspan(tokens.size());
  }
  return {};
}

BlockId PrefixCache::allocate(int group) {
  const bool stub = group == 0 && layout_.has_stubs;
  if (const BlockId block = pool_.take_free(stub); block != kNoBlock) return block;
  const bool was_passed = !stub && pool_.has_passed();
  const BlockId victim = pool_.oldest_evictable(stub);
  if (victim == kNoBlock) return kNoBlock;
  if (pool_.adapter_of(victim) != 0) {
    pool_.free_adapter(victim);
  } else {
    evict(victim, was_passed);
    pool_.free_evictable(victim);
  }
  return pool_.take_free(stub);
}

// To the host, where that pays and has a place, and the block is full; or where more is below it.
void PrefixCache::evict(BlockId block, bool was_passed) {
  const NodeId id = node_of_[index(block)];
  const int group = drop_other(id, block);
  if (node(id).num_tokens < kBlockSize) {
    if (group == 0) return detach(id);
    // Nobody finds a partial block without all groups, and it would keep its tokens' place.
    if (is_evictable_partial(id)) free_partial(id);
    return;
  }
  if (group > 0) {
    send_to_host(block, id, group, host_pays_ && !was_passed);
    return;
  }
  const bool pays = host_pays_ || node(id).num_children > 0;
  if (pool_.is_stub(block) || !send_to_host(block, id, 0, pays)) return detach(id);
  drop_others_in_pool(id);  // as a rule they went before
  set_block(id, kNoBlock);
  unlist(id);
}

// What the host has already is the youngest now. Whether it has it.
bool PrefixCache::send_to_host(BlockId block, NodeId id, int group, bool pays) {
  if (host_.num_total() == 0) return false;
  if (const BlockId held = host_of(id, group); held != kNoBlock) {
    host_.pin(held);
    host_.unpin(held, true);
    return true;
  }
  const BlockId host = pays ? take_host() : kNoBlock;
  if (host == kNoBlock) return false;
  set_host(id, group, host);
  moves_.push_back({block, to_number(host)});
  host_.unpin(host, true);
  return true;
}

// Out of the list that is searched for hits inside a block, and back: only of blocks in the pool
// can there be any.
void PrefixCache::unlist(NodeId id) {
  if (!node(id).is_listed) return;
  node(id).is_listed = false;
  remove_sibling(id, kFamilyTokens);
}

void PrefixCache::list(NodeId id) {
  if (node(id).is_listed) return;
  trim_siblings(node(id).parent, node(id).tokens, kBlockSize);
  add_sibling(id, kFamilyTokens);
  node(id).is_listed = true;
}

// A free one, else the least recently moved one, pinned; kNoBlock where there is none.
BlockId PrefixCache::take_host() {
  if (host_.num_free() == 0 && host_.num_evictable() > 0) drop_oldest_host();
  return host_.take_free();
}

void PrefixCache::drop_oldest_host() {
  const BlockId oldest = host_.oldest_evictable();
  const NodeId id = node_of_host_[index(oldest)];
  const int group = group_of_host(id, oldest);
  if (group > 0 || node(id).block != kNoBlock) {
    set_host(id, group, kNoBlock);
  } else {
    detach(id);
  }
  host_.free_evictable(oldest);
}

void PrefixCache::fetch(const PrefixMatch& match, std::vector<BlockId>& to) {
  // All of them first: each allocation may move another block out.
  for (const BlockId number : match.host) host_.pin(to_host(number));
  for (const PrefixMatch::OnHost& one : match.windows) host_.pin(to_host(one.block));
  const std::size_t num_groups = index(layout_.num_groups);
  for (const BlockId number : match.host) {
    to.push_back(fetch_one(number, 0));
    to.resize(to.size() + num_groups - 1, kNullBlock);
  }
  for (const auto& [run, group, number] : match.windows) {
    to[index(run) * num_groups + index(group)] = fetch_one(number, group);
  }
  for (const BlockId number : match.host) host_.unpin(to_host(number), true);
  for (const PrefixMatch::OnHost& one : match.windows) host_.unpin(to_host(one.block), true);
}

BlockId PrefixCache::fetch_one(BlockId number, int group) {
  const BlockId block = allocate(group);
  LMTP_CHECK(block != kNoBlock, number);
  const NodeId id = node_of_host_[index(to_host(number))];
  if (group == 0) {
    set_block(id, block);
    list(id);
  } else {
    set_in_group(node(id).block, group, block);
  }
  moves_.push_back({number, block});
  return block;
}

void PrefixCache::clear() {
  LMTP_CHECK(pool_.num_pinned() == 0, pool_.num_pinned());
  while (host_.num_evictable() > 0) drop_oldest_host();
  for (const bool stub : {false, true}) {
    for (BlockId block = kNoBlock; (block = pool_.oldest_evictable(stub)) != kNoBlock;) {
      LMTP_CHECK(pool_.adapter_of(block) == 0, block);
      const NodeId id = node_of_[index(block)];
      if (drop_other(id, block) == 0) detach(id);
      pool_.free_evictable(block);
    }
  }
  clear_moves();
}

BlockId PrefixCache::insert(BlockId parent, std::span<const TokenId> tokens, BlockId block) {
  LMTP_CHECK(!is_indexed(block) && pool_.num_refs(block) > 0, block);
  LMTP_CHECK(parent < 0 || (num_tokens(parent) == kBlockSize && pool_.num_refs(parent) > 0),
             parent);
  return insert_below(parent_of(parent), tokens, block);
}

BlockId PrefixCache::insert_below(NodeId parent, std::span<const TokenId> tokens, BlockId block) {
  LMTP_CHECK(!tokens.empty() && tokens.size() <= kBlockSize, tokens.size());
  const int size = static_cast<int>(tokens.size());
  if (size == kBlockSize && full_blocks_.find(full_block_hash(parent, tokens.data())) != nullptr) {
    const NodeId same = find_full_block(parent, tokens.data());
    if (same == kNoNode) return kNoBlock;
    if (node(same).block == kNoBlock) {  // computed again
      set_block(same, block);
      list(same);
    }
    return node(same).block;
  }
  if (size < kFamilyTokens) {
    const NodeId head = find_head(parent, tokens.data(), size);
    if (head != kNoNode && node(head).block != kNoBlock) {
      return node(head).num_tokens == size ? node(head).block : kNoBlock;
    }
  }
  NodeId at = size < kFamilyTokens ? kNoNode : first_sibling(parent, tokens.data(), kFamilyTokens);
  while (at != kNoNode) {
    const Node& one = node(at);
    const NodeId next = one.next[kFamilyTokens - 1];
    const int common = one.parent != parent ? 0
                                            : common_prefix(tokens.data(), one.tokens,
                                                            std::min(size, one.num_tokens));
    if (common == size) return one.num_tokens == size ? one.block : kNoBlock;
    // A shorter, unpinned node that `tokens` begin with adds nothing to the new one.
    if (common == one.num_tokens && is_evictable_partial(at)) free_partial(at);
    at = next;
  }
  for (int count = 1; count < std::min(size, kFamilyTokens); ++count) {
    const NodeId head = find_head(parent, tokens.data(), count);
    if (head == kNoNode) break;  // nor has a longer one any
    if (node(head).num_tokens == count && is_evictable_partial(head)) free_partial(head);
  }
  attach(parent, tokens, block);
  return block;
}

BlockId PrefixCache::extend(BlockId block, std::span<const TokenId> tokens) {
  const NodeId id = node_of_[index(block)];
  const Node& held = node(id);
  LMTP_CHECK(held.num_tokens > 0 && held.num_tokens < kBlockSize, block, held.num_tokens);
  LMTP_CHECK(held.num_tokens <= static_cast<int>(tokens.size()), held.num_tokens, tokens.size());
  LMTP_CHECK(std::equal(held.tokens, held.tokens + held.num_tokens, tokens.begin()), block);
  if (held.num_tokens == static_cast<int>(tokens.size())) return block;
  const NodeId parent = held.parent;
  detach(id);
  return insert_below(parent, tokens, block);
}

void PrefixCache::unpin_path(std::span<const BlockId> blocks) {
  for (auto at = blocks.rbegin(); at != blocks.rend(); ++at) {
    if (*at != kNullBlock) pool_.unpin(*at, is_indexed(*at));
  }
}

void PrefixCache::set_block(NodeId id, BlockId block) {
  Node& changed = node(id);
  if (changed.block != kNoBlock) node_of_[index(changed.block)] = 0;
  if (block != kNoBlock) node_of_[index(block)] = id;
  changed.block = block;
}

void PrefixCache::set_host(NodeId id, int group, BlockId host) {
  BlockId& held = group == 0
                      ? node(id).host
                      : host_others_[index(id) * index(layout_.num_groups - 1) + index(group - 1)];
  if (held != kNoBlock) node_of_host_[index(held)] = 0;
  if (host != kNoBlock) node_of_host_[index(host)] = id;
  held = host;
}

void PrefixCache::attach(NodeId parent, std::span<const TokenId> tokens, BlockId block) {
  trim_siblings(parent, tokens.data(), static_cast<int>(tokens.size()));
  LMTP_CHECK(!free_nodes_.empty());
  const NodeId id = free_nodes_.back();
  free_nodes_.pop_back();
  Node& added = node(id);
  added.parent = parent;
  added.num_tokens = static_cast<int>(tokens.size());
  std::copy(tokens.begin(), tokens.end(), added.tokens);
  set_block(id, block);
  if (added.num_tokens == kBlockSize) {
    full_blocks_.find_or_add(full_block_hash(parent, added.tokens)) = id;
  }
  for (int count = 1; count <= num_lists(added); ++count) add_sibling(id, count);
  added.is_listed = true;
  if (!is_root(parent)) ++node(parent).num_children;
}

// The states of its blocks are the caller's to change.
void PrefixCache::detach(NodeId id) {
  Node& gone = node(id);
  LMTP_CHECK(gone.num_tokens > 0 && gone.num_children == 0, id, gone.num_children);
  if (gone.num_tokens == kBlockSize) full_blocks_.erase(full_block_hash(gone.parent, gone.tokens));
  for (int count = num_lists(gone) - (gone.is_listed ? 0 : 1); count > 0; --count) {
    remove_sibling(id, count);
  }
  if (!is_root(gone.parent)) --node(gone.parent).num_children;
  drop_others(id);
  set_block(id, kNoBlock);
  set_host(id, 0, kNoBlock);
  gone.num_tokens = 0;
  gone.parent = kNoNode;
  gone.is_listed = false;
  free_nodes_.push_back(id);
}

void PrefixCache::free_partial(NodeId id) {
  const BlockId block = node(id).block;
  detach(id);
  pool_.free_evictable(block);
}

// At the head, or behind the head that ends with the tokens that the list has in common.
void PrefixCache::add_sibling(NodeId id, int count) {
  Node& added = node(id);
  const int at = count - 1;
  SiblingList& list = siblings_.find_or_add(hash_of(added.parent, added.tokens, count));
  const bool is_behind = count < kFamilyTokens && list.head != kNoNode &&
                         node(list.head).num_tokens == count && added.num_tokens > count;
  added.prev[at] = is_behind ? list.head : kNoNode;
  added.next[at] = is_behind ? node(list.head).next[at] : list.head;
  (added.next[at] == kNoNode ? list.tail : node(added.next[at]).prev[at]) = id;
  (is_behind ? node(list.head).next[at] : list.head) = id;
  ++list.size;
}

void PrefixCache::remove_sibling(NodeId id, int count) {
  const int at = count - 1;
  const std::uint64_t hash = hash_of(node(id).parent, node(id).tokens, count);
  SiblingList* const list = siblings_.find(hash);
  LMTP_CHECK(list != nullptr, id);
  const NodeId prev = node(id).prev[at];
  const NodeId next = node(id).next[at];
  (prev == kNoNode ? list->head : node(prev).next[at]) = next;
  (next == kNoNode ? list->tail : node(next).prev[at]) = prev;
  if (--list->size == 0) siblings_.erase(hash);
}

// Keeps the list that is searched within its limit before an addition. Pinned partial nodes stay:
// there are no more of them than running sequences.
void PrefixCache::trim_siblings(NodeId parent, const TokenId* tokens, int size) {
  if (size < kFamilyTokens) return;
  const SiblingList* const list = siblings_.find(hash_of(parent, tokens, kFamilyTokens));
  if (list == nullptr || list->size < kMaxSiblings) return;
  for (NodeId at = list->tail; at != kNoNode;) {
    if (node(at).num_tokens == kBlockSize) return unlist(at);
    if (is_evictable_partial(at)) return free_partial(at);
    at = node(at).prev[kFamilyTokens - 1];
  }
}

}  // namespace lmtp::cache
