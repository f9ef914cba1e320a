// Tensor parallelism: how a model's weights are divided among ranks.
#pragma once

namespace lmtp::model {

// One rank of several, each of which holds its share of the weights and of the KV cache.
struct Shard {
  int rank = 0;   // in [0, count)
  int count = 1;  // the world size

  friend bool operator==(const Shard&, const Shard&) = default;
};

// Of the world size: more than a machine has devices or NUMA nodes.
inline constexpr int kRanksMax = 64;

// What a rank has of the weight [n, k] of a linear layer.
enum class Split {
  kNone,     // all of it
  kOutputs,  // column parallel: its share of the outputs
  kInputs,   // row parallel: its share of the inputs; the outputs are summed over the ranks
};

}  // namespace lmtp::model
