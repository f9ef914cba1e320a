#include "lmtp/cache/prefix_cache.h"

#include <algorithm>
#include <ranges>

#include "lmtp/base/check.h"

namespace lmtp::cache {
namespace {

int common_prefix(const TokenId* a, const TokenId* b, int limit) {
  return static_cast<int>(std::mismatch(a, a + limit, b).first - a);
}

}  // namespace

PrefixCache::PrefixCache(BlockPool& pool)
    : pool_(pool), nodes_(static_cast<std::size_t>(pool.num_total()) + 1) {}

BlockId PrefixCache::eldest(BlockId parent, TokenId first) const {
  const auto found = eldest_.find(family_key(parent, first));
  return found == eldest_.end() ? kNoBlock : found->second;
}

BlockId PrefixCache::find_whole(BlockId parent, const TokenId* tokens) const {
  for (BlockId at = eldest(parent, tokens[0]); at != kNoBlock; at = nodes_[index(at)].next_sibling) {
    const Node& node = nodes_[index(at)];
    if (node.num_tokens == kBlockSize && std::equal(tokens, tokens + kBlockSize, node.tokens)) {
      return at;
    }
  }
  return kNoBlock;
}

PrefixMatch PrefixCache::match(std::span<const TokenId> tokens) const {
  PrefixMatch result;
  BlockId parent = kNoBlock;
  std::size_t done = 0;
  while (done + kBlockSize <= tokens.size()) {
    const BlockId node = find_whole(parent, tokens.data() + done);
    if (node == kNoBlock) break;
    result.blocks.push_back(node);
    parent = node;
    done += kBlockSize;
  }
  if (done == tokens.size()) return result;
  const int rest = static_cast<int>(std::min<std::size_t>(tokens.size() - done, kBlockSize));
  for (BlockId at = eldest(parent, tokens[done]); at != kNoBlock;
       at = nodes_[index(at)].next_sibling) {
    const Node& node = nodes_[index(at)];
    const int common =
        common_prefix(tokens.data() + done, node.tokens, std::min(rest, node.num_tokens));
    // Among equals the one that can be taken over in place saves a copy.
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
  LMTP_CHECK(parent == kNoBlock || (num_tokens(parent) == kBlockSize && pool_.num_refs(parent) > 0),
             parent);
  const int size = static_cast<int>(tokens.size());
  int num_siblings = 0;
  BlockId at = eldest(parent, tokens[0]);
  while (at != kNoBlock) {
    const Node& node = nodes_[index(at)];
    const BlockId next = node.next_sibling;
    const int common = common_prefix(tokens.data(), node.tokens, std::min(size, node.num_tokens));
    if (common == size && node.num_tokens >= size) return node.num_tokens == size ? at : kNoBlock;
    if (common == node.num_tokens && pool_.is_evictable(at)) {
      // A shorter one that this one begins with, and that nobody uses, has nothing more to give.
      detach(at);
      pool_.free_evictable(at);
    } else if (++num_siblings >= kMaxSiblings) {
      return kNoBlock;
    }
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
  for (const BlockId block : std::views::reverse(blocks)) pool_.unpin(block, is_indexed(block));
}

void PrefixCache::attach(BlockId parent, std::span<const TokenId> tokens, BlockId block) {
  Node& node = nodes_[index(block)];
  node.parent = parent;
  node.num_tokens = static_cast<int>(tokens.size());
  std::copy(tokens.begin(), tokens.end(), node.tokens);
  BlockId& head = eldest_.try_emplace(family_key(parent, tokens[0]), kNoBlock).first->second;
  node.next_sibling = head;
  head = block;
  if (parent != kNoBlock) ++nodes_[index(parent)].num_children;
  ++num_indexed_;
}

void PrefixCache::detach(BlockId block) {
  Node& node = nodes_[index(block)];
  LMTP_CHECK(node.num_tokens > 0 && node.num_children == 0, block, node.num_children);
  const auto family = eldest_.find(family_key(node.parent, node.tokens[0]));
  LMTP_CHECK(family != eldest_.end(), block);
  BlockId* link = &family->second;
  while (*link != block) link = &nodes_[index(*link)].next_sibling;
  *link = node.next_sibling;
  if (family->second == kNoBlock) eldest_.erase(family);
  if (node.parent != kNoBlock) --nodes_[index(node.parent)].num_children;
  node.num_tokens = 0;
  node.parent = node.next_sibling = kNoBlock;
  --num_indexed_;
}

void PrefixCache::check_invariants() const {
  LMTP_CHECK(pool_.num_free() + pool_.num_evictable() + pool_.num_pinned() == pool_.num_total(),
             pool_.num_free(), pool_.num_evictable(), pool_.num_pinned(), pool_.num_total());
  std::vector<int> children(nodes_.size(), 0);
  int indexed = 0;
  for (BlockId block = 1; block <= pool_.num_total(); ++block) {
    const Node& node = nodes_[index(block)];
    LMTP_CHECK(!pool_.is_evictable(block) || node.num_tokens > 0, block);
    LMTP_CHECK(!pool_.is_free(block) || node.num_tokens == 0, block);
    if (node.num_tokens == 0) continue;
    ++indexed;
    if (node.parent == kNoBlock) continue;
    ++children[index(node.parent)];
    LMTP_CHECK(num_tokens(node.parent) == kBlockSize, block, node.parent);
    LMTP_CHECK(pool_.num_refs(block) == 0 || pool_.num_refs(node.parent) > 0, block, node.parent);
  }
  LMTP_CHECK(indexed == num_indexed_, indexed, num_indexed_);
  for (BlockId block = 1; block <= pool_.num_total(); ++block) {
    LMTP_CHECK(children[index(block)] == nodes_[index(block)].num_children, block);
  }
}

}  // namespace lmtp::cache
