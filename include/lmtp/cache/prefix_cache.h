// PrefixCache: finds blocks that hold the keys and values of the same tokens already.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/kv_layout.h"
#include "lmtp/cache/block_pool.h"
#include "lmtp/cache/fixed_map.h"

namespace lmtp::cache {

// The cached prefix of a token sequence. Blocks are those of group 0.
struct PrefixMatch {
  struct OnHost {
    int run = 0;
    int group = 0;
    BlockId block = kNoBlock;
  };

  std::vector<BlockId> blocks;  // full blocks, in order
  std::vector<BlockId> host;    // full blocks behind them that the host alone has
  std::vector<OnHost> windows;  // what of other groups the host alone has, of any of these runs
  // A block whose first num_partial tokens continue the prefix; kNoBlock if there is none.
  BlockId partial = kNoBlock;
  int num_partial = 0;
  // By group: of these blocks and of those after them, PrefixCache::in_group() has one, or the
  // host.
  std::array<int, KvLayout::kGroupsMax> first = {};

  int num_blocks() const { return static_cast<int>(blocks.size() + host.size()); }
  int num_on_host() const { return static_cast<int>(host.size() + windows.size()); }
  int num_tokens() const { return num_blocks() * kBlockSize + num_partial; }
};

// A block to be copied whole. One of them is the host's.
struct BlockMove {
  BlockId from = kNoBlock;
  BlockId to = kNoBlock;
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
// Below the pool there may be blocks of the host (lmdeploy's swapped pages): one that is evicted
// moves there, and the node stays. So a node has a block of the pool, one of the host, or both;
// what is not full is never moved. Of the host's blocks the least recently moved one is dropped for
// another. Whatever is below a node that the host alone has is there alone, too, and was moved
// before it; so the oldest one that the host alone has never has children.
//
// Where a model's layers are in groups (KvLayout) a node is a block of group 0, and holds at most
// one of each other group: without it where a stream has passed it, and it was evicted for others.
// A match ends where each group has the tokens that the next one sees. A block of another group is
// pinned only while that of group 0 is, and goes with it. Where those of group 0 are stubs, a node
// whose other blocks are all gone stays for what is below it, until its stub is needed. To the host
// goes what is evicted of each group, but for stubs, and for what one stream alone has passed.
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
  // Siblings that following() looks at.
  static constexpr int kFollowingMax = 16;

  // `pool` outlives the cache. Blocks of the host are numbered behind those of the pool.
  // REQUIRES: num_host_blocks >= 0.
  explicit PrefixCache(BlockPool& pool, int num_host_blocks = 0, const KvLayout& layout = {});

  const KvLayout& layout() const { return layout_; }

  // The parent of a namespace's first blocks.
  static BlockId root(int name_space) { return kNoBlock - name_space; }

  // Whether match() finds what the host alone has, and what is evicted goes there. At first it
  // does.
  void set_host_pays(bool pays) { host_pays_ = pays; }

  // The longest cached prefix of `tokens` in that namespace. Pins nothing; valid until the next
  // change.
  PrefixMatch match(int name_space, std::span<const TokenId> tokens) const;
  // The match ends before its partial block, or earlier.
  void drop_partial(PrefixMatch& match) const;

  // What the text of a node below `parent`, a root or a full node, has behind these tokens; empty:
  // none is found that begins with them and goes on. Valid until the next change.
  std::span<const TokenId> following(BlockId parent, std::span<const TokenId> tokens) const;

  // A block pinned once for the caller: a free one, else the least recently used evictable one,
  // which goes to the host, or is removed from the index; where that is an idle adapter's, it loses
  // all its blocks. kNoBlock if all are in use. `group`: a stub, where that has these.
  BlockId allocate(int group = -1);

  // Takes a block of the pool for each that the host alone has of a match, and pins it for the
  // caller. `to`: [blocks, groups] of the match's, to which the others are added.
  // REQUIRES: nothing has changed since the match but that its other blocks are pinned, and so many
  // are to be had.
  void fetch(const PrefixMatch& match, std::vector<BlockId>& to);

  // What allocate() and fetch() want to be copied, in this order, before anything is written to a
  // block that they gave; since the last clear_moves().
  const std::vector<BlockMove>& moves() const { return moves_; }
  void clear_moves() { moves_.clear(); }

  // Forgets all blocks. REQUIRES: none is pinned.
  void clear();

  // Adds `block`, which holds `tokens`, below `parent`, which may be a root(). Returns the node
  // that holds them from now on: `block`; or an existing node with exactly these tokens; or
  // kNoBlock where nothing is gained (a longer sibling begins with these tokens) or the hash
  // collides. REQUIRES: block is pinned and not indexed; parent is a root or a full node, pinned.
  BlockId insert(BlockId parent, std::span<const TokenId> tokens, BlockId block);

  // The partial node `block` now holds `tokens`, which begin with those it held. Returns what
  // insert() does; if that is not `block`, `block` is no longer indexed.
  // REQUIRES: block is an indexed partial node, pinned by the caller.
  BlockId extend(BlockId block, std::span<const TokenId> tokens);

  // What the node of `block`, which is of group 0, holds of a group; kNullBlock: nothing.
  // REQUIRES: `block` is indexed.
  BlockId in_group(BlockId block, int group) const {
    return group == 0 ? block : other(node_of_[index(block)], group);
  }
  // From now on it holds `other`. REQUIRES: it holds nothing of that group, or `other` already;
  // both are pinned; `other` is not indexed elsewhere; group > 0.
  void set_in_group(BlockId block, int group, BlockId other);

  // Unpins each block of a path, deepest first; of those without a reference left, indexed ones
  // become evictable, the others free. kNullBlock is passed over.
  void unpin_path(std::span<const BlockId> blocks);

  bool is_indexed(BlockId block) const { return num_tokens(block) > 0; }
  int num_tokens(BlockId block) const { return nodes_[index(node_of_[index(block)])].num_tokens; }
  BlockPool& pool() { return pool_; }
  const BlockPool& pool() const { return pool_; }
  const BlockPool& host() const { return host_; }

  // Aborts if the trie and the pool do not agree. O(blocks); for debug builds and tests.
  void check_invariants() const;

 private:
  // An index into nodes_; 0 is that of what is not indexed. Negative: a root, or none.
  using NodeId = std::int32_t;
  static constexpr NodeId kNoNode = -1;

  struct Node {
    NodeId parent = kNoNode;
    NodeId prev[kFamilyTokens] = {};  // of the siblings' lists, by their tokens less one
    NodeId next[kFamilyTokens] = {};
    BlockId block = kNoBlock;  // of the pool
    BlockId host = kNoBlock;   // of host_
    bool is_listed = false;    // in all lists that its tokens allow; else not in the searched one
    int num_children = 0;
    int num_tokens = 0;  // 0: it is free
    TokenId tokens[kBlockSize] = {};
  };
  struct SiblingList {
    NodeId head = kNoNode;
    NodeId tail = kNoNode;
    int size = 0;
  };

  static bool is_root(NodeId parent) { return parent < 0; }
  static std::size_t index(std::int32_t id) { return static_cast<std::size_t>(id); }
  static int num_lists(const Node& node) { return std::min(node.num_tokens, kFamilyTokens); }
  Node& node(NodeId id) { return nodes_[index(id)]; }
  const Node& node(NodeId id) const { return nodes_[index(id)]; }
  // A block of the host as others know it, and back.
  BlockId to_number(BlockId host) const { return pool_.num_total() + host; }
  BlockId to_host(BlockId number) const { return number - pool_.num_total(); }
  NodeId parent_of(BlockId block) const { return block < 0 ? block : node_of_[index(block)]; }
  NodeId first_sibling(NodeId parent, const TokenId* tokens, int count) const;
  NodeId find_head(NodeId parent, const TokenId* tokens, int count) const;
  NodeId find_full_block(NodeId parent, const TokenId* tokens) const;
  BlockId other(NodeId id, int group) const {
    return others_[index(id) * index(layout_.num_groups - 1) + index(group - 1)];
  }
  BlockId& other(NodeId id, int group) {
    return others_[index(id) * index(layout_.num_groups - 1) + index(group - 1)];
  }
  // A block of host_. REQUIRES: there are blocks of the host.
  BlockId host_of(NodeId id, int group) const {
    if (group == 0) return node(id).host;
    return host_others_[index(id) * index(layout_.num_groups - 1) + index(group - 1)];
  }
  int group_of_host(NodeId id, BlockId host) const;
  bool has_all_groups(NodeId id) const;
  bool is_found(NodeId id, int group) const;
  NodeId node_at(const PrefixMatch& match, int run) const;
  void end_in_windows(PrefixMatch& result) const;
  bool begin_windows(PrefixMatch& result) const;
  void drop_others(NodeId id);
  void drop_others_in_pool(NodeId id);
  int drop_other(NodeId id, BlockId block);
  void match_partial(NodeId parent, std::span<const TokenId> tokens, PrefixMatch& result) const;
  bool is_evictable_partial(NodeId id) const;
  BlockId insert_below(NodeId parent, std::span<const TokenId> tokens, BlockId block);
  void attach(NodeId parent, std::span<const TokenId> tokens, BlockId block);
  void detach(NodeId id);
  void free_partial(NodeId id);
  void set_block(NodeId id, BlockId block);
  void evict(BlockId block, bool was_passed);
  bool send_to_host(BlockId block, NodeId id, int group, bool pays);
  BlockId fetch_one(BlockId number, int group);
  void set_host(NodeId id, int group, BlockId host);
  BlockId take_host();
  void drop_oldest_host();
  void list(NodeId id);
  void unlist(NodeId id);
  void add_sibling(NodeId id, int count);
  void remove_sibling(NodeId id, int count);
  void trim_siblings(NodeId parent, const TokenId* tokens, int size);
  bool is_other_of(NodeId id, BlockId block) const;
  void check_node(NodeId id) const;

  BlockPool& pool_;
  const KvLayout layout_;
  BlockPool host_;                    // pinned only while they are fetched
  std::vector<Node> nodes_;           // [blocks of both + 1]
  std::vector<BlockId> others_;       // [nodes, groups - 1]; kNullBlock: none
  std::vector<BlockId> host_others_;  // of host_; kNoBlock: none. Empty where there is no host
  std::vector<NodeId> free_nodes_;    // the next one last
  std::vector<NodeId> node_of_;       // [num_blocks]
  std::vector<NodeId> node_of_host_;  // [blocks of the host + 1]
  std::vector<BlockMove> moves_;
  bool host_pays_ = true;
  // Hash of parent and tokens -> node.
  FixedMap<NodeId> full_blocks_;
  // Hash of parent and first tokens -> the nodes.
  FixedMap<SiblingList> siblings_;
};

}  // namespace lmtp::cache
