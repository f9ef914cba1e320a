// PrefixCache: finds blocks whose keys and values were already computed for the same tokens.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/cache/block_pool.h"

namespace lmtp::cache {

// What of a token sequence is cached.
struct PrefixMatch {
  std::vector<BlockId> blocks;  // whole blocks, in order
  // A block whose first num_partial tokens go on from there; kNoBlock where there is none.
  BlockId partial = kNoBlock;
  int num_partial = 0;

  int num_tokens() const { return static_cast<int>(blocks.size()) * kBlockSize + num_partial; }
};

// A trie of blocks. A node is a block: its parent, and the 1 to kBlockSize tokens it holds. Only
// whole blocks have children. Tokens are always compared exactly; the hash only narrows the search.
// Whole blocks are found by the hash of parent and tokens. For hits inside a block, the siblings
// that begin with the same token form a family: a list of at most kMaxSiblings, the newest first.
//
// Nodes are pinned by the sequences that use them or evictable; the path from the root to a pinned
// node is pinned too, and unpin_path lets go of the deepest first, so that the least recently used
// evictable node never has children.
//
// A partial node may be matched by anyone: the tokens that it lists do not change while its owner
// goes on writing behind them. Who matches all tokens of an unreferenced one may take it over
// (pin it and go on writing in place); everybody else copies.
//
// The idea of a radix tree over KV: SGLang (Zheng et al. 2023), blocks: vLLM (Kwon et al. 2023).
// Owner: the scheduler. One thread.
class PrefixCache {
 public:
  // Bounds every search for a partial hit. Of a larger family the oldest leave the list: unused
  // tails are freed, whole blocks are then found as wholes only.
  static constexpr int kMaxSiblings = 512;

  // `pool` outlives the cache.
  explicit PrefixCache(BlockPool& pool);

  // The longest cached prefix of `tokens`. Pins nothing; ends its life at the next change.
  PrefixMatch match(std::span<const TokenId> tokens) const;

  // A block pinned once for the caller: a free one, else the least recently used evictable one,
  // which leaves the index. kNoBlock where all are pinned.
  BlockId allocate();

  // Puts `block` below `parent` (kNoBlock: the root), holding `tokens`. Returns the node that holds
  // them from now on: `block`; or a node that was there with the very same tokens; or kNoBlock
  // where nothing is gained (a longer sibling begins with these tokens) or a limit is reached.
  // REQUIRES: block is pinned and not indexed; parent is kNoBlock or a whole node, pinned.
  BlockId insert(BlockId parent, std::span<const TokenId> tokens, BlockId block);

  // The partial node `block` now holds `tokens`, which begin with those it held. Returns as insert;
  // where it is not `block`, `block` has left the index.
  // REQUIRES: block is an indexed partial node, pinned by the caller.
  BlockId extend(BlockId block, std::span<const TokenId> tokens);

  // Lets go of a path, deepest first; indexed nodes become evictable, the others free.
  void unpin_path(std::span<const BlockId> blocks);

  bool is_indexed(BlockId block) const { return nodes_[index(block)].num_tokens > 0; }
  int num_tokens(BlockId block) const { return nodes_[index(block)].num_tokens; }

  // Aborts where the trie and the pool do not agree. O(blocks); for debug builds and tests.
  void check_invariants() const;

 private:
  struct Node {
    BlockId parent = kNoBlock;
    BlockId older = kNoBlock;  // neighbours in the family's list
    BlockId newer = kNoBlock;
    bool in_family = false;
    int num_children = 0;
    int num_tokens = 0;  // 0: not indexed
    TokenId tokens[kBlockSize] = {};
  };
  // Nodes with the same parent and the same first token.
  struct Family {
    BlockId newest = kNoBlock;
    BlockId oldest = kNoBlock;
    int size = 0;
  };

  static std::size_t index(BlockId block) { return static_cast<std::size_t>(block); }
  static std::uint64_t family_key(BlockId parent, TokenId first) {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(parent)) << 32) |
           static_cast<std::uint32_t>(first);
  }
  BlockId newest(BlockId parent, TokenId first) const;
  BlockId find_whole(BlockId parent, const TokenId* tokens) const;
  bool is_loose_tail(BlockId block) const;
  void attach(BlockId parent, std::span<const TokenId> tokens, BlockId block);
  void detach(BlockId block);
  void free_tail(BlockId block);
  void join_family(BlockId block);
  void leave_family(BlockId block);
  void trim_family(BlockId parent, TokenId first);

  BlockPool& pool_;
  std::vector<Node> nodes_;                             // [num_blocks]
  std::unordered_map<std::uint64_t, BlockId> wholes_;   // hash of parent and tokens -> node
  std::unordered_map<std::uint64_t, Family> families_;  // family_key -> its members
  int num_indexed_ = 0;
};

}  // namespace lmtp::cache
