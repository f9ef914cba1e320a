// Which worker has seen which beginning of a stream. No sockets, no threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lmtp/base/ids.h"

namespace lmtp::balance {

// A hash for each whole block of the tokens, of it and all before it, as a worker's prefix cache
// keeps them: of `prompt` and `generated` behind it, at most `tokens_max` tokens. `model`: keys and
// values of different adapters differ. [<= tokens_max / kBlockSize]
std::vector<std::uint64_t> block_chain(std::string_view model, std::span<const TokenId> prompt,
                                       std::span<const TokenId> generated, int tokens_max);

// From the hashes of chains to workers; forgets what was not used for longest. Owner: the pool, one
// thread at a time.
class AffinityTable {
 public:
  // Between half and all of `capacity` are kept. REQUIRES: capacity >= 2.
  explicit AffinityTable(std::size_t capacity) : half_(capacity / 2) {}

  struct Known {
    std::size_t worker = 0;
    std::size_t num_blocks = 0;  // of the chain's beginning
  };
  // The longest beginning that is known.
  std::optional<Known> find(std::span<const std::uint64_t> chain);
  void set(std::span<const std::uint64_t> chain, std::size_t worker);
  std::size_t size() const { return young_.size() + old_.size(); }

 private:
  using Map = std::unordered_map<std::uint64_t, std::uint32_t>;

  void put(std::uint64_t hash, std::uint32_t worker);

  const std::size_t half_;
  // A generation each: what is used goes to the young one; when that is full, the old one is
  // forgotten and the young one is the old one.
  Map young_;
  Map old_;
};

}  // namespace lmtp::balance
