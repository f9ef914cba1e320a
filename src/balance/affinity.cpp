#include "affinity.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <utility>

namespace lmtp::balance {

std::vector<std::uint64_t> block_chain(std::string_view model, std::span<const TokenId> prompt,
                                       std::span<const TokenId> generated, int tokens_max) {
  constexpr auto kBlock = static_cast<std::size_t>(kBlockSize);
  const std::size_t num_tokens =
      std::min(prompt.size() + generated.size(), static_cast<std::size_t>(tokens_max));
  std::vector<std::uint64_t> chain;
  chain.reserve(num_tokens / kBlock);
  std::uint64_t parent = XXH3_64bits(model.data(), model.size());
  for (std::size_t end = kBlock; end <= num_tokens; end += kBlock) {
    std::array<TokenId, kBlock> block;
    for (std::size_t i = 0; i < kBlock; ++i) {
      const std::size_t at = end - kBlock + i;
      block[i] = at < prompt.size() ? prompt[at] : generated[at - prompt.size()];
    }
    parent = XXH3_64bits_withSeed(block.data(), sizeof(block), parent);
    chain.push_back(parent);
  }
  return chain;
}

std::optional<AffinityTable::Known> AffinityTable::find(std::span<const std::uint64_t> chain) {
  std::optional<Known> known;
  for (std::size_t i = 0; i < chain.size(); ++i) {
    const auto young = young_.find(chain[i]);
    if (young != young_.end()) {
      known = Known{young->second, i + 1};
      continue;
    }
    const auto old = old_.find(chain[i]);
    if (old == old_.end()) break;
    known = Known{old->second, i + 1};
    put(chain[i], old->second);
  }
  return known;
}

void AffinityTable::set(std::span<const std::uint64_t> chain, std::size_t worker) {
  for (const std::uint64_t hash : chain) put(hash, static_cast<std::uint32_t>(worker));
}

void AffinityTable::put(std::uint64_t hash, std::uint32_t worker) {
  if (young_.size() >= half_ && !young_.contains(hash)) {
    old_ = std::move(young_);
    young_ = {};
  }
  young_[hash] = worker;
}

}  // namespace lmtp::balance
