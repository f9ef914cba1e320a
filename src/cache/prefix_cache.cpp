#include "lmtp/cache/prefix_cache.h"

#include <algorithm>

#include "lmtp/base/check.h"

namespace lmtp::cache {
namespace {

int common_prefix(const TokenId* a, const TokenId* b, int limit) {
  return static_cast<int>(std::mismatch(a, a + limit, b).first - a);
}

// Of a full block below `parent`: a multiply-xor mix of all its tokens.
std::uint64_t full_block_hash(BlockId parent, const TokenId* tokens) {
  std::uint64_t hash = static_cast<std::uint32_t>(parent) + 0x9E3779B97F4A7C15ULL;
  for (int i = 0; i < kBlockSize; ++i) {
    hash = (hash ^ static_cast<std::uint32_t>(tokens[i])) * 0xFF51AFD7ED558CCDULL;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

PrefixCache::PrefixCache(BlockPool& pool)
    : pool_(pool), nodes_(static_cast<std::size_t>(pool.num_total()) + 1) {}

BlockId PrefixCache::first_sibling(BlockId parent, TokenId first) const {
  const auto found = siblings_.find(siblings_key(parent, first));
  return found == siblings_.end() ? kNoBlock : found->second.head;
}

BlockId PrefixCache::find_full_block(BlockId parent, const TokenId* tokens) const {
  const auto found = full_blocks_.find(full_block_hash(parent, tokens));
  if (found == full_blocks_.end()) return kNoBlock;
  const Node& node = nodes_[index(found->second)];
  const bool same = node.parent == parent && std::equal(tokens, tokens + kBlockSize, node.tokens);
  return same ? found->second : kNoBlock;
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
  for (BlockId at = first_sibling(parent, tokens[done]); at != kNoBlock;
       at = nodes_[index(at)].next) {
    const Node& node = nodes_[index(at)];
    const int common =
        common_prefix(tokens.data() + done, node.tokens, std::min(rest, node.num_tokens));
    // Of equal matches, one that can be taken over in place saves a copy.
    const bool in_place = common == node.num_tokens && pool_.is_evictable(at);
    if (common > result.num_partial || (common == result.num_partial && in_place)) {
      result.partial = at;
      result.num_partial = common;
    }
  }
  return result;
}

BlockId PrefixCache::allocate() {
  if (const BlockId block = pool_.take_free(); block != kNoBlock) return block;
  const BlockId victim = pool_.oldest_evictable();
  if (victim == kNoBlock) return kNoBlock;
  detach(victim);
  pool_.free_evictable(victim);
  return pool_.take_free();
}

BlockId PrefixCache::insert(BlockId parent, std::span<const TokenId> tokens, BlockId block) {
  LMTP_CHECK(!tokens.empty() && tokens.size() <= kBlockSize, tokens.size());
  LMTP_CHECK(!is_indexed(block) && pool_.num_refs(block) > 0, block);
  LMTP_CHECK(is_root(parent) || (num_tokens(parent) == kBlockSize && pool_.num_refs(parent) > 0),
             parent);
  const int size = static_cast<int>(tokens.size());
  if (size == kBlockSize) {
    const auto there = full_blocks_.find(full_block_hash(parent, tokens.data()));
    if (there != full_blocks_.end()) return find_full_block(parent, tokens.data());
  }
  BlockId at = first_sibling(parent, tokens[0]);
  while (at != kNoBlock) {
    const Node& node = nodes_[index(at)];
    const BlockId next = node.next;
    const int common = common_prefix(tokens.data(), node.tokens, std::min(size, node.num_tokens));
    if (common == size) return node.num_tokens == size ? at : kNoBlock;
    // A shorter, unpinned node that `tokens` begin with adds nothing to the new one.
    if (common == node.num_tokens && is_evictable_partial(at)) free_partial(at);
    at = next;
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
  trim_siblings(parent, tokens[0]);
  Node& node = nodes_[index(block)];
  node.parent = parent;
  node.num_tokens = static_cast<int>(tokens.size());
  std::copy(tokens.begin(), tokens.end(), node.tokens);
  if (node.num_tokens == kBlockSize) {
    full_blocks_.emplace(full_block_hash(parent, node.tokens), block);
  }
  add_sibling(block);
  if (!is_root(parent)) ++nodes_[index(parent)].num_children;
}

void PrefixCache::detach(BlockId block) {
  Node& node = nodes_[index(block)];
  LMTP_CHECK(node.num_tokens > 0 && node.num_children == 0, block, node.num_children);
  if (node.num_tokens == kBlockSize) full_blocks_.erase(full_block_hash(node.parent, node.tokens));
  if (node.is_listed) remove_sibling(block);
  if (!is_root(node.parent)) --nodes_[index(node.parent)].num_children;
  node.num_tokens = 0;
  node.parent = kNoBlock;
}

void PrefixCache::free_partial(BlockId block) {
  detach(block);
  pool_.free_evictable(block);
}

void PrefixCache::add_sibling(BlockId block) {
  Node& node = nodes_[index(block)];
  SiblingList& list = siblings_[siblings_key(node.parent, node.tokens[0])];
  node.next = list.head;
  node.prev = kNoBlock;
  node.is_listed = true;
  (list.head == kNoBlock ? list.tail : nodes_[index(list.head)].prev) = block;
  list.head = block;
  ++list.size;
}

void PrefixCache::remove_sibling(BlockId block) {
  Node& node = nodes_[index(block)];
  const auto list = siblings_.find(siblings_key(node.parent, node.tokens[0]));
  LMTP_CHECK(list != siblings_.end(), block);
  (node.prev == kNoBlock ? list->second.head : nodes_[index(node.prev)].next) = node.next;
  (node.next == kNoBlock ? list->second.tail : nodes_[index(node.next)].prev) = node.prev;
  node.next = node.prev = kNoBlock;
  node.is_listed = false;
  if (--list->second.size == 0) siblings_.erase(list);
}

// Keeps the list within its limit before an addition. Pinned partial nodes stay: there are no more
// of them than running sequences.
void PrefixCache::trim_siblings(BlockId parent, TokenId first) {
  const auto list = siblings_.find(siblings_key(parent, first));
  if (list == siblings_.end() || list->second.size < kMaxSiblings) return;
  BlockId at = list->second.tail;
  while (at != kNoBlock) {
    const Node& node = nodes_[index(at)];
    if (node.num_tokens == kBlockSize) return remove_sibling(at);
    if (is_evictable_partial(at)) return free_partial(at);
    at = node.prev;
  }
}

void PrefixCache::check_invariants() const {
  LMTP_CHECK(pool_.num_free() + pool_.num_evictable() + pool_.num_pinned() == pool_.num_total(),
             pool_.num_free(), pool_.num_evictable(), pool_.num_pinned(), pool_.num_total());
  std::vector<int> children(nodes_.size(), 0);
  std::size_t num_full = 0;
  for (BlockId block = 1; block <= pool_.num_total(); ++block) {
    const Node& node = nodes_[index(block)];
    LMTP_CHECK(!pool_.is_evictable(block) || node.num_tokens > 0, block);
    LMTP_CHECK(!pool_.is_free(block) || node.num_tokens == 0, block);
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
