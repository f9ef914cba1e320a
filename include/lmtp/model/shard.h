// Tensor parallelism: how a model's weights are divided among ranks.
#pragma once

#include <cstdint>

namespace lmtp::model {

// One rank of several, each of which holds its share of the weights and of the KV cache.
struct Shard {
  int rank = 0;   // in [0, count)
  int count = 1;  // the world size

  friend bool operator==(const Shard&, const Shard&) = default;
};

// Of the world size: more than a machine has devices or NUMA nodes.
inline constexpr int kRanksMax = 64;

// Rows [first, first + count) of a vocabulary.
struct VocabShare {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// What a rank has of the embeddings and of the output head: whole panels, where they are large.
// REQUIRES: as many ids as ranks.
inline VocabShare vocab_share(std::int64_t vocab_size, Shard shard) {
  constexpr std::int64_t kPanel = 32;  // rows that are packed together
  const std::int64_t unit = vocab_size < shard.count * 32 * kPanel ? 1 : kPanel;
  const auto begin = [&](int rank) {
    return rank == shard.count ? vocab_size : vocab_size * rank / shard.count / unit * unit;
  };
  return {begin(shard.rank), begin(shard.rank + 1) - begin(shard.rank)};
}

// What a rank has of the weight [n, k] of a linear layer.
enum class Split {
  kNone,     // all of it
  kOutputs,  // column parallel: its share of the outputs
  kInputs,   // row parallel: its share of the inputs; the outputs are summed over the ranks
};

}  // namespace lmtp::model
