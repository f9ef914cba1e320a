// LoRA (Hu et al. 2021): what adapters add to the product of a linear layer, where each row of a
// batch may have another adapter, or none (S-LoRA, Sheng et al. 2023; Punica, Chen et al. 2023).
#pragma once

#include <cstdint>

#include "kernels/element_type.h"
#include "kernels/matrix.h"
#include "kernels/stream.h"

namespace lmtp::kernels {

// An adapter's matrices are made of chunks of [kLoraRanks][kLoraLanes] elements: so many ranks of
// neighbouring inputs, or outputs. What a matrix does not have of a chunk is zero.
inline constexpr int kLoraRanks = 4;
inline constexpr int kLoraLanes = 16;
inline constexpr int kLoraChunk = kLoraRanks * kLoraLanes;

constexpr std::int64_t lora_lane_groups(std::int64_t n) {
  return (n + kLoraLanes - 1) / kLoraLanes;
}
constexpr std::int64_t lora_rank_groups(std::int64_t rank) {
  return (rank + kLoraRanks - 1) / kLoraRanks;
}
// Elements of a matrix [rank, n].
constexpr std::int64_t lora_size(std::int64_t rank, std::int64_t n) {
  return lora_rank_groups(rank) * lora_lane_groups(n) * kLoraChunk;
}

// What an adapter adds to some outputs of a linear layer: y += B A x, the scale being in B. `a` and
// `b`: the first elements of the matrices.
//   A  [rank groups][input groups] chunks
//   B  [output groups][rank groups] chunks
struct LoraDelta {
  std::int64_t a = 0;
  std::int64_t b = 0;
  int rank = 0;  // >= 1
  int first_output = 0;
  int num_outputs = 0;
};

// One adapter's weights: elements of one array, of which each of `pieces` has piece_size. Does not
// own its memory, which is aligned as Memory.
struct LoraAdapter {
  const void* const* pieces = nullptr;
  std::int64_t piece_size = 0;  // a multiple of kLoraChunk
  ElementType type = ElementType::kF32;
  // Of linear layer i the deltas [first_delta[i], first_delta[i + 1]).
  const LoraDelta* deltas = nullptr;
  const std::int32_t* first_delta = nullptr;
};

// A row of a step that has an adapter.
struct LoraRow {
  std::int32_t row = 0;
  std::int32_t adapter = 0;  // index in LoraRows::adapters
};

// All of a step. Rows of one adapter are neighbours.
struct LoraRows {
  const LoraRow* rows = nullptr;  // [num_rows], of distinct rows
  std::int64_t num_rows = 0;
  const LoraAdapter* adapters = nullptr;
  int num_adapters = 0;

  // Whether any of the adapters adds something to that linear layer.
  bool concerns(int linear) const {
    for (int i = 0; i < num_adapters; ++i) {
      const std::int32_t* first = adapters[i].first_delta + linear;
      if (first[0] < first[1]) return true;
    }
    return false;
  }
};

struct LoraArgs {
  Matrix<const float> x;  // [m, k] f32
  int linear = 0;         // its number among the model's
  LoraRows rows;
  Matrix<float> y;  // [m, n] f32; must not overlap x
};

// Adds to y, in f32. Rows without an adapter are neither read nor written.
void lora(Stream& stream, const LoraArgs& args);

}  // namespace lmtp::kernels
