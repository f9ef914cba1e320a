// y = activation(x W^T + bias) + residual, with W packed once for streaming.
//
// Packed layout: [ceil(n / kPanelColumns)][k][kPanelColumns] f32, missing columns zero. One vector
// lane is one output column, and its value is one chain of fused multiply-adds over k = 0, 1, ...:
// the same chain whatever the number of rows, so a row's bits do not depend on its neighbours.
#pragma once

#include <cstdint>

#include "kernels/matrix.h"
#include "kernels/stream.h"

namespace lmtp::kernels {

inline constexpr int kPanelColumns = 32;

// Owner of the memory: somebody else. 64-byte aligned.
struct PackedLinear {
  const float* panels = nullptr;
  std::int64_t n = 0;  // outputs
  std::int64_t k = 0;  // inputs
};

// f32 elements that a packed weight takes.
constexpr std::int64_t packed_size(std::int64_t n, std::int64_t k) {
  return (n + kPanelColumns - 1) / kPanelColumns * kPanelColumns * k;
}

enum class Activation {
  kNone,
  kGeluTanh,  // 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))): HF's gelu_new
  kGeluErf,   // 0.5 x (1 + erf(x / sqrt(2))): HF's gelu
  kRelu,
  kSilu,
};

struct LinearArgs {
  Matrix<const float> x;        // [m, k] f32
  PackedLinear weight;          // [n, k]
  const float* bias = nullptr;  // [n] f32, or null
  Activation activation = Activation::kNone;
  Matrix<const float> residual = {};  // [m, n] f32, or empty; may be y itself
  Matrix<float> y;                    // [m, n] f32; must not overlap x
};

void linear_f32(Stream& stream, const LinearArgs& args);

enum class ElementType { kF32, kF16, kBF16 };

// Bytes of one element.
constexpr int element_size(ElementType type) { return type == ElementType::kF32 ? 4 : 2; }

enum class WeightOrder {
  kOutputsByInputs,  // [n, k]: torch's Linear, an embedding
  kInputsByOutputs,  // [k, n]: GPT-2's Conv1D
};

// A weight as a checkpoint holds it: rows follow one another; may be unaligned (a mapped file).
struct SourceWeight {
  const void* data = nullptr;
  ElementType type = ElementType::kF32;
  WeightOrder order = WeightOrder::kOutputsByInputs;
  std::int64_t n = 0;
  std::int64_t k = 0;
};

// Fills panels[0, packed_size(n, k)).
void pack_linear_f32(WorkerPool& pool, const SourceWeight& source, float* panels);

// to[i] = from[i] as f32, for a tensor that is not a matrix product's.
void convert_to_f32(const void* from, ElementType type, std::int64_t count, float* to);

}  // namespace lmtp::kernels
