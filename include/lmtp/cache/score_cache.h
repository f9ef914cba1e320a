// ScoreCache: log probabilities of tokens, each behind the prefix for which it was computed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "lmtp/base/ids.h"

namespace lmtp::cache {

// log p(token | prefix) of the model's own logits, which by the numerics contract has the same bits
// whenever it is computed. Beside the PrefixCache and not in it: no node is there for the last
// token of a text, which never goes through the model, and what is known outlives the keys and
// values from which it was computed.
//
// An entry is a run of 1 to kBlockSize tokens behind a block boundary, and what is known of each of
// them: one for a block of a sequence, and one more for each way in which others leave it. A
// boundary is the number of the entry that ends there, or a namespace at the beginning; keys and
// values depend on the adapter, so do log probabilities, and namespaces share nothing. What is
// looked for is a prefix, the tokens from the boundary to the one in question: a hash table has a
// link for each that is known, and for each whole block. Tokens are always compared exactly; hashes
// only narrow the search. Numbers are never given twice: what is behind an entry that is gone is
// not found any more, and goes in turn.
//
// The least recently used entry goes for another. One takes 256 bytes with its part of the table:
// 16 for a token where a whole block is known. All memory is reserved at the start, and that of the
// entries is touched as they are used: an addition allocates nothing. Owner: the scheduler. One
// thread.
class ScoreCache {
 public:
  // A block boundary of a sequence: where the next search begins. {}: at its beginning.
  struct Place {
    std::uint64_t boundary = 0;
    int num_blocks = 0;  // before it
  };

  // Has no more than limit_bytes. REQUIRES: limit_bytes >= 0; where no entry fits nothing is kept.
  explicit ScoreCache(std::int64_t limit_bytes);

  bool is_on() const { return capacity_ > 0; }

  // log p(tokens.back() | those before it); nullopt: not known. `place` is one of this sequence, or
  // {}, and is moved towards the last token.
  // REQUIRES: tokens is not empty; name_space >= 0; is_on().
  std::optional<float> find(int name_space, std::span<const TokenId> tokens, Place& place);

  // Keeps those of the last tokens, each behind the ones before it; where one is known that stays.
  // REQUIRES: as find(); logprobs are numbers or -infinity, at least one, and of tokens of one
  // block.
  void add(int name_space, std::span<const TokenId> tokens, std::span<const float> logprobs,
           Place& place);

  std::int64_t num_bytes() const;  // in use, at most limit_bytes
  std::int64_t num_bytes_max() const { return limit_bytes_; }

  // Aborts if the entries, their order and the buckets do not agree. O(entries); for debug builds
  // and tests.
  void check_invariants() const;

 private:
  // Of entries_; 0 is the end of lists.
  using Index = std::uint32_t;
  // Of an entry's first tokens: its index times kBlockSize, and the last one's place. 0: none.
  using Link = std::uint32_t;
  using Tokens = std::span<const TokenId>;
  using Buckets = std::array<Index, kBlockSize>;
  static constexpr std::size_t kBucketsAnEntry = 8;
  static constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();

  struct Entry {
    std::uint64_t boundary = 0;
    std::uint64_t number = 0;
    std::array<TokenId, kBlockSize> tokens = {};
    std::array<float, kBlockSize> logprobs = {};  // kUnknown
    std::array<Link, kBlockSize> next = {};       // of the same bucket, where there is a link
    int num_tokens = 0;
    Index older = 0;
    Index younger = 0;

    Tokens first(std::size_t count) const { return Tokens(tokens).first(count); }
    bool has_link(std::size_t at) const;
  };

  Entry& entry_of(Link link) { return entries_[link / kBlockSize]; }
  // Of each prefix of the tokens behind the boundary; at most a block of them.
  Buckets buckets_of(std::uint64_t boundary, Tokens tokens) const;
  Link look_up(Index bucket, std::uint64_t boundary, Tokens tokens);
  std::uint64_t pass_block(std::uint64_t boundary, Tokens tokens);
  Index place_for(Index known, std::uint64_t boundary, Tokens tokens);
  Index take_entry();
  void add_link(Index bucket, Index entry, std::size_t at);
  void remove_links(Index entry);
  void use(Index at);
  void append(Index at);
  void unlink(Index at);

  const std::int64_t limit_bytes_;
  const std::size_t capacity_;
  std::vector<Entry> entries_;  // [0]: the circular list's sentinel, between youngest and oldest
  std::vector<Link> buckets_;   // [a power of two]: the first link of each
  std::uint64_t next_number_ = std::uint64_t{1} << 32;  // above all namespaces
};

}  // namespace lmtp::cache
