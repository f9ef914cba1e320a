// PrefixCache: finds blocks that hold the keys and values of the same tokens already.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/cache/block_pool.h"
#include "lmtp/cache/fixed_map.h"

namespace lmtp::cache {

// The cached prefix of a token sequence.
struct PrefixMatch {
  std::vector<BlockId> blocks;  // full blocks, in order
  // A block whose first num_partial tokens continue the prefix; kNoBlock if there is none.
  BlockId partial = kNoBlock;
  int num_partial = 0;

  int num_tokens() const { return static_cast<int>(blocks.size()) * kBlockSize + num_partial; }
};

// A trie of blocks. A node is a block: its parent, and the 1 to kBlockSize tokens it holds. Only
// full blocks have children. Tokens are always compared exactly; hashes only narrow the search.
// Full blocks are found by the hash of parent and tokens. For hits inside a block, the siblings
// that begin with the same tokens are lists, one for each of the lengths 1 to kFamilyTokens. Only
// the longest is searched, so that a first token that all prompts have costs nothing; it has at
// most kMaxSiblings, the newest first. Of a shorter one the head is as good as any: it is the node
// that ends there, where there is one.
//
// There is a root for each namespace, and below different ones nothing is shared: keys and values
// depend on the adapter that computed them. Namespace 0 is that of no adapter.
//
// Nodes are pinned by the sequences that use them, or evictable; the path from the root to a pinned
// node is pinned too, and unpin_path unpins the deepest first, so that the least recently used
// evictable node never has children.
//
// A partial node may be matched by any sequence: the tokens that it lists do not change while its
// owner goes on writing behind them. A sequence that matches all tokens of an unpinned one may take
// it over (pin it and go on writing in place); all others copy it.
//
// Memory for all blocks is taken at the start: that one becomes full in a step costs no allocation.
//
// The idea of a radix tree over KV: SGLang (Zheng et al. 2023), blocks: vLLM (Kwon et al. 2023).
// Owner: the scheduler. One thread.
class PrefixCache {
 public:
  // Bounds every search for a partial hit. From a longer list the oldest are removed: an evictable
  // partial block is freed, a full one is from then on found by all its tokens only.
  static constexpr int kMaxSiblings = 512;
  static constexpr int kFamilyTokens = 4;

  // `pool` outlives the cache.
  explicit PrefixCache(BlockPool& pool);

  // The parent of a namespace's first blocks.
  static BlockId root(int name_space) { return kNoBlock - name_space; }

  // The longest cached prefix of `tokens` in that namespace. Pins nothing; valid until the next
  // change.
  PrefixMatch match(int name_space, std::span<const TokenId> tokens) const;

  // A block pinned once for the caller: a free one, else the least recently used evictable one,
  // which is removed from the index; where that is an idle adapter's, it loses all its blocks.
  // kNoBlock if all are in use.
  BlockId allocate();

  // Adds `block`, which holds `tokens`, below `parent`, which may be a root(). Returns the node
  // that holds them from now on: `block`; or an existing node with exactly these tokens; or
  // kNoBlock where nothing is gained (a longer sibling begins with these tokens) or the hash
  // collides. REQUIRES: block is pinned and not indexed; parent is a root or a full node, pinned.
  BlockId insert(BlockId parent, std::span<const TokenId> tokens, BlockId block);

  // The partial node `block` now holds `tokens`, which begin with those it held. Returns what
  // insert() does; if that is not `block`, `block` is no longer indexed.
  // REQUIRES: block is an indexed partial node, pinned by the caller.
  BlockId extend(BlockId block, std::span<const TokenId> tokens);

  // Unpins each block of a path, deepest first; of those without a reference left, indexed ones
  // become evictable, the others free.
  void unpin_path(std::span<const BlockId> blocks);

  bool is_indexed(BlockId block) const { return nodes_[index(block)].num_tokens > 0; }
  int num_tokens(BlockId block) const { return nodes_[index(block)].num_tokens; }

  // Aborts if the trie and the pool do not agree. O(blocks); for debug builds and tests.
  void check_invariants() const;

 private:
  struct Node {
    BlockId parent = kNoBlock;         // negative: a root
    BlockId prev[kFamilyTokens] = {};  // of the siblings' lists, by their tokens less one
    BlockId next[kFamilyTokens] = {};
    bool is_listed = false;  // in all lists that its tokens allow; else not in the longest
    int num_children = 0;
    int num_tokens = 0;  // 0: not indexed
    TokenId tokens[kBlockSize] = {};
  };
  struct SiblingList {
    BlockId head = kNoBlock;
    BlockId tail = kNoBlock;
    int size = 0;
  };

  static bool is_root(BlockId parent) { return parent < 0; }
  static std::size_t index(BlockId block) { return static_cast<std::size_t>(block); }
  static int num_lists(const Node& node) { return std::min(node.num_tokens, kFamilyTokens); }
  BlockId first_sibling(BlockId parent, const TokenId* tokens, int count) const;
  BlockId find_head(BlockId parent, const TokenId* tokens, int count) const;
  BlockId find_full_block(BlockId parent, const TokenId* tokens) const;
  bool is_evictable_partial(BlockId block) const;
  void attach(BlockId parent, std::span<const TokenId> tokens, BlockId block);
  void detach(BlockId block);
  void free_partial(BlockId block);
  void add_sibling(BlockId block, int count);
  void remove_sibling(BlockId block, int count);
  void trim_siblings(BlockId parent, const TokenId* tokens, int size);

  BlockPool& pool_;
  std::vector<Node> nodes_;  // [num_blocks]
  // Hash of parent and tokens -> node.
  FixedMap<BlockId> full_blocks_;
  // Hash of parent and first tokens -> the nodes.
  FixedMap<SiblingList> siblings_;
};

}  // namespace lmtp::cache
