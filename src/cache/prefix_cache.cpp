#include "lmtp/cache/prefix_cache.h"

#include <algorithm>

#include "lmtp/base/check.h"

namespace lmtp::cache {
namespace {

int common_prefix(const TokenId* a, const TokenId* b, int limit) {
  return static_cast<int>(std::mismatch(a, a + limit, b).first - a);
}

std::uint64_t mixed(std::uint64_t hash) {
  hash *= 0xFF51AFD7ED558CCDULL;
  return hash ^ hash >> 32;
}

// Of the first `count` tokens of a block below `parent`. The parent is mixed before the first token
// is: both are small, and their plain exclusive or is often that of another pair.
std::uint64_t hash_of(BlockId parent, const TokenId* tokens, int count) {
  std::uint64_t hash = static_cast<std::uint32_t>(parent) + 0x9E3779B97F4A7C15ULL;
  hash = mixed(hash + (static_cast<std::uint64_t>(count) << 32));
  for (int i = 0; i < count; ++i) hash = mixed(hash ^ static_cast<std::uint32_t>(tokens[i]));
  return hash;
}

std::uint64_t full_block_hash(BlockId parent, const TokenId* tokens) {
  return hash_of(parent, tokens, kBlockSize);
}

}  // namespace

PrefixCache::PrefixCache(BlockPool& pool)
    : pool_(pool),
      nodes_(index(pool.num_total()) + 1),
      full_blocks_(index(pool.num_total())),
      siblings_(index(pool.num_total()) * kFamilyTokens) {}

BlockId PrefixCache::first_sibling(BlockId parent, const TokenId* tokens, int count) const {
  const SiblingList* const list = siblings_.find(hash_of(parent, tokens, count));
  return list == nullptr ? kNoBlock : list->head;
}

// A node below `parent` that begins with these tokens, and ends with them where there is one.
BlockId PrefixCache::find_head(BlockId parent, const TokenId* tokens, int count) const {
  const BlockId head = first_sibling(parent, tokens, count);
  if (head == kNoBlock) return kNoBlock;
  const Node& node = nodes_[index(head)];
  const bool same = node.parent == parent && std::equal(tokens, tokens + count, node.tokens);
  return same ? head : kNoBlock;
}

BlockId PrefixCache::find_full_block(BlockId parent, const TokenId* tokens) const {
  const BlockId* const found = full_blocks_.find(full_block_hash(parent, tokens));
  if (found == nullptr) return kNoBlock;
  const Node& node = nodes_[index(*found)];
  const bool same = node.parent == parent && std::equal(tokens, tokens + kBlockSize, node.tokens);
  return same ? *found : kNoBlock;
}

bool PrefixCache::is_evictable_partial(BlockId block) const {
  return nodes_[index(block)].num_tokens < kBlockSize && pool_.is_evictable(block);
}

PrefixMatch PrefixCache::match(int name_space, std::span<const TokenId> tokens) const {
  PrefixMatch result;
  BlockId parent = root(name_space);
  std::size_t done = 0;
  while (done + kBlockSize <= tokens.size()) {
    const BlockId node = find_full_block(parent, tokens.data() + done);
    if (node == kNoBlock) break;
    result.blocks.push_back(node);
    parent = node;
    done += kBlockSize;
  }
  if (done == tokens.size()) return result;
  const int rest = static_cast<int>(std::min<std::size_t>(tokens.size() - done, kBlockSize));
  const TokenId* const begin = tokens.data() + done;
  BlockId at = rest < kFamilyTokens ? kNoBlock : first_sibling(parent, begin, kFamilyTokens);
  for (; at != kNoBlock; at = nodes_[index(at)].next[kFamilyTokens - 1]) {
    const Node& node = nodes_[index(at)];
    if (node.parent != parent) continue;
    const int common = common_prefix(begin, node.tokens, std::min(rest, node.num_tokens));
    // Of equal matches, one that can be taken over in place saves a copy.
    const bool in_place = common == node.num_tokens && pool_.is_evictable(at);
    if (common > result.num_partial || (common == result.num_partial && in_place)) {
      result.partial = at;
      result.num_partial = common;
    }
  }
  for (int count = std::min(rest, kFamilyTokens - 1); count > result.num_partial; --count) {
    result.partial = find_head(parent, begin, count);
    if (result.partial != kNoBlock) result.num_partial = count;
  }
  return result;
}

BlockId PrefixCache::allocate() {
  if (const BlockId block = pool_.take_free(); block != kNoBlock) return block;
  const BlockId victim = pool_.oldest_evictable();
  if (victim == kNoBlock) return kNoBlock;
  if (pool_.adapter_of(victim) != 0) {
    pool_.free_adapter(victim);
  } else {
    detach(victim);
    pool_.free_evictable(victim);
  }
  return pool_.take_free();
}

BlockId PrefixCache::insert(BlockId parent, std::span<const TokenId> tokens, BlockId block) {
  LMTP_CHECK(!tokens.empty() && tokens.size() <= kBlockSize, tokens.size());
  LMTP_CHECK(!is_indexed(block) && pool_.num_refs(block) > 0, block);
  LMTP_CHECK(is_root(parent) || (num_tokens(parent) == kBlockSize && pool_.num_refs(parent) > 0),
             parent);
  const int size = static_cast<int>(tokens.size());
  if (size == kBlockSize) {
    const bool is_taken = full_blocks_.find(full_block_hash(parent, tokens.data())) != nullptr;
    if (is_taken) return find_full_block(parent, tokens.data());
  }
  if (size < kFamilyTokens) {
    const BlockId head = find_head(parent, tokens.data(), size);
    if (head != kNoBlock) return num_tokens(head) == size ? head : kNoBlock;
  }
  BlockId at =
      size < kFamilyTokens ? kNoBlock : first_sibling(parent, tokens.data(), kFamilyTokens);
  while (at != kNoBlock) {
    const Node& node = nodes_[index(at)];
    const BlockId next = node.next[kFamilyTokens - 1];
    const int common = node.parent != parent ? 0
                                             : common_prefix(tokens.data(), node.tokens,
                                                             std::min(size, node.num_tokens));
    if (common == size) return node.num_tokens == size ? at : kNoBlock;
    // A shorter, unpinned node that `tokens` begin with adds nothing to the new one.
    if (common == node.num_tokens && is_evictable_partial(at)) free_partial(at);
    at = next;
  }
  for (int count = 1; count < std::min(size, kFamilyTokens); ++count) {
    const BlockId head = find_head(parent, tokens.data(), count);
    if (head == kNoBlock) break;  // nor has a longer one any
    if (num_tokens(head) == count && is_evictable_partial(head)) free_partial(head);
  }
  attach(parent, tokens, block);
  return block;
}

BlockId PrefixCache::extend(BlockId block, std::span<const TokenId> tokens) {
  const Node& node = nodes_[index(block)];
  LMTP_CHECK(node.num_tokens > 0 && node.num_tokens < kBlockSize, block, node.num_tokens);
  LMTP_CHECK(node.num_tokens <= static_cast<int>(tokens.size()), node.num_tokens, tokens.size());
  LMTP_CHECK(std::equal(node.tokens, node.tokens + node.num_tokens, tokens.begin()), block);
  if (node.num_tokens == static_cast<int>(tokens.size())) return block;
  const BlockId parent = node.parent;
  detach(block);
  return insert(parent, tokens, block);
}

void PrefixCache::unpin_path(std::span<const BlockId> blocks) {
  for (auto at = blocks.rbegin(); at != blocks.rend(); ++at) pool_.unpin(*at, is_indexed(*at));
}

void PrefixCache::attach(BlockId parent, std::span<const TokenId> tokens, BlockId block) {
  trim_siblings(parent, tokens.data(), static_cast<int>(tokens.size()));
  Node& node = nodes_[index(block)];
  node.parent = parent;
  node.num_tokens = static_cast<int>(tokens.size());
  std::copy(tokens.begin(), tokens.end(), node.tokens);
  if (node.num_tokens == kBlockSize) {
    full_blocks_.find_or_add(full_block_hash(parent, node.tokens)) = block;
  }
  for (int count = 1; count <= num_lists(node); ++count) add_sibling(block, count);
  node.is_listed = true;
  if (!is_root(parent)) ++nodes_[index(parent)].num_children;
}

void PrefixCache::detach(BlockId block) {
  Node& node = nodes_[index(block)];
  LMTP_CHECK(node.num_tokens > 0 && node.num_children == 0, block, node.num_children);
  if (node.num_tokens == kBlockSize) full_blocks_.erase(full_block_hash(node.parent, node.tokens));
  for (int count = num_lists(node) - (node.is_listed ? 0 : 1); count > 0; --count) {
    remove_sibling(block, count);
  }
  if (!is_root(node.parent)) --nodes_[index(node.parent)].num_children;
  node.num_tokens = 0;
  node.parent = kNoBlock;
  node.is_listed = false;
}

void PrefixCache::free_partial(BlockId block) {
  detach(block);
  pool_.free_evictable(block);
}

// At the head, or behind the head that ends with the tokens that the list has in common.
void PrefixCache::add_sibling(BlockId block, int count) {
  Node& node = nodes_[index(block)];
  const int at = count - 1;
  SiblingList& list = siblings_.find_or_add(hash_of(node.parent, node.tokens, count));
  const bool is_behind = count < kFamilyTokens && list.head != kNoBlock &&
                         num_tokens(list.head) == count && node.num_tokens > count;
  node.prev[at] = is_behind ? list.head : kNoBlock;
  node.next[at] = is_behind ? nodes_[index(list.head)].next[at] : list.head;
  (node.next[at] == kNoBlock ? list.tail : nodes_[index(node.next[at])].prev[at]) = block;
  (is_behind ? nodes_[index(list.head)].next[at] : list.head) = block;
  ++list.size;
}

void PrefixCache::remove_sibling(BlockId block, int count) {
  const Node& node = nodes_[index(block)];
  const int at = count - 1;
  const std::uint64_t hash = hash_of(node.parent, node.tokens, count);
  SiblingList* const list = siblings_.find(hash);
  LMTP_CHECK(list != nullptr, block);
  const BlockId prev = node.prev[at];
  const BlockId next = node.next[at];
  (prev == kNoBlock ? list->head : nodes_[index(prev)].next[at]) = next;
  (next == kNoBlock ? list->tail : nodes_[index(next)].prev[at]) = prev;
  if (--list->size == 0) siblings_.erase(hash);
}

// Keeps the list that is searched within its limit before an addition. Pinned partial nodes stay:
// there are no more of them than running sequences.
void PrefixCache::trim_siblings(BlockId parent, const TokenId* tokens, int size) {
  if (size < kFamilyTokens) return;
  const SiblingList* const list = siblings_.find(hash_of(parent, tokens, kFamilyTokens));
  if (list == nullptr || list->size < kMaxSiblings) return;
  for (BlockId at = list->tail; at != kNoBlock;) {
    Node& node = nodes_[index(at)];
    if (node.num_tokens == kBlockSize) {
      node.is_listed = false;
      return remove_sibling(at, kFamilyTokens);
    }
    if (is_evictable_partial(at)) return free_partial(at);
    at = node.prev[kFamilyTokens - 1];
  }
}

void PrefixCache::check_invariants() const {
  LMTP_CHECK(pool_.num_free() + pool_.num_evictable() + pool_.num_pinned() + pool_.num_adapter() ==
                 pool_.num_total(),
             pool_.num_free(), pool_.num_evictable(), pool_.num_pinned(), pool_.num_adapter(),
             pool_.num_total());
  std::vector<int> children(nodes_.size(), 0);
  std::size_t num_full = 0;
  for (BlockId block = 1; block <= pool_.num_total(); ++block) {
    const Node& node = nodes_[index(block)];
    LMTP_CHECK(!pool_.is_evictable(block) || node.num_tokens > 0, block);
    LMTP_CHECK(!pool_.is_free(block) || node.num_tokens == 0, block);
    LMTP_CHECK(pool_.adapter_of(block) == 0 || node.num_tokens == 0, block);
    LMTP_CHECK(node.num_tokens > 0 || !node.is_listed, block);
    if (node.num_tokens == 0) continue;
    LMTP_CHECK(node.is_listed || node.num_tokens == kBlockSize, block);
    if (node.num_tokens == kBlockSize) {
      ++num_full;
      LMTP_CHECK(find_full_block(node.parent, node.tokens) == block);
    }
    if (is_root(node.parent)) continue;
    ++children[index(node.parent)];
    LMTP_CHECK(num_tokens(node.parent) == kBlockSize, block, node.parent);
    LMTP_CHECK(pool_.num_refs(block) == 0 || pool_.num_refs(node.parent) > 0, block, node.parent);
  }
  LMTP_CHECK(num_full == full_blocks_.size(), num_full, full_blocks_.size());
  for (BlockId block = 1; block <= pool_.num_total(); ++block) {
    LMTP_CHECK(children[index(block)] == nodes_[index(block)].num_children, block);
  }
}

}  // namespace lmtp::cache
