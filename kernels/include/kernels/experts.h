// Mixtures of experts (Shazeer et al. 2017): which experts a row goes to, their products, and the
// weighted sum. In a backend that has these ops a row's bits depend on that row alone, as of all
// ops, whichever rows share an expert with it. On a CPU; a device's backend has none of them.
//
// The rows of all experts stand together, sorted by expert: a row of x has top_k slots, expert e
// those from offsets[e] up to offsets[e + 1].
#pragma once

#include <cstdint>

#include "kernels/linear.h"
#include "kernels/matrix.h"
#include "kernels/stream.h"

namespace lmtp::kernels {

inline constexpr int kExpertsMax = 1024;
inline constexpr int kExpertsPerRowMax = 64;

// How a row's scores become its experts and their weights.
struct Routing {
  enum class Kind : std::uint8_t {
    kSoftmax,          // weights are the softmax of all scores
    kSoftmaxOfChosen,  // of those of the chosen experts
    kSigmoid,          // of each score by itself
  };
  Kind kind = Kind::kSoftmax;
  int top_k = 1;  // up to kExpertsPerRowMax, and to the number of experts in top_groups
  // Experts are chosen out of the best top_groups of so many equal groups; a group counts as the
  // sum of its two best scores (DeepSeek-AI 2024).
  int groups = 1;
  int top_groups = 1;
  // Weights are divided by their sum + sum_added, or by sum_min where that is more. The sum goes
  // from the best expert on.
  bool renormalise = false;
  float sum_added = 0.0F;
  float sum_min = 0.0F;
  float scale = 1.0F;  // of the weights, at the end
};

struct RouteArgs {
  Matrix<const float> logits;  // [m, num_experts] f32, up to kExpertsMax
  Routing routing;
  const float* choice_bias = nullptr;  // [num_experts] f32, added for the choice alone; or null
  std::int32_t* experts = nullptr;     // [m, top_k], of a row ascending
  Matrix<float> weights;               // [m, top_k] f32, as experts
};

// The top_k experts of each row; of equal ones the lower numbers.
void route(Stream& stream, const RouteArgs& args);

struct ExpertRowsArgs {
  const std::int32_t* experts = nullptr;  // [m, top_k], each in [0, num_experts)
  std::int64_t m = 0;
  int top_k = 1;
  int num_experts = 0;
  std::int32_t* offsets = nullptr;  // [num_experts + 1]
  std::int32_t* rows = nullptr;     // [m * top_k]: the row of each slot
  std::int32_t* slots = nullptr;    // [m, top_k]: the slot of each entry of experts
};

// Sorts by expert; of one expert rows ascend.
void expert_rows(Stream& stream, const ExpertRowsArgs& args);

struct ExpertLinear {
  PackedLinear weight;
  const float* bias = nullptr;  // [n] f32, or null
};

struct ExpertLinearArgs {
  Matrix<const float> x;                  // [slots, k] f32
  const std::int32_t* offsets = nullptr;  // [num_experts + 1], up to slots
  const ExpertLinear* experts = nullptr;  // [num_experts], each [n, k], of any type
  int num_experts = 0;
  Matrix<float> y;  // [slots, n] f32; must not overlap x
};

// y = x W^T + bias by the expert of each slot, with the bits of linear() of that expert alone.
void expert_linear(Stream& stream, const ExpertLinearArgs& args);

struct CombineArgs {
  Matrix<const float> x;                 // [slots, width] f32: what experts gave
  const std::int32_t* slots = nullptr;   // [m, top_k], each in [0, slots)
  Matrix<const float> weights;           // [m, top_k] f32
  Matrix<const float> shared = {};       // [m, width] f32, or empty
  Matrix<const float> shared_gate = {};  // [m, 1] f32, or empty: shared counts sigmoid(gate)
  float scale = 1.0F;                    // of everything but the residual
  Matrix<const float> residual = {};     // [m, width] f32, or empty; may be y itself
  Matrix<float> y;                       // [m, width] f32
};

// y = (sum of weights * x, in the order of slots' columns, + shared) * scale + residual.
void combine(Stream& stream, const CombineArgs& args);

}  // namespace lmtp::kernels
