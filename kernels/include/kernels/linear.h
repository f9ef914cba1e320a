// y = activation(x W^T + bias) + residual, with W packed once for streaming.
//
// Packed layout: [ceil(n / kPanelColumns)][units][kPanelColumns] of 32 bits each, missing columns
// and inputs zero. A unit is one f32 input, two bf16 or four int8. One vector lane is one output
// column, and its value is one chain of operations over units 0, 1, ...: the same chain whatever
// the number of rows, so a row's bits do not depend on its neighbours.
//   f32   fused multiply-adds
//   bf16  x rounded to bf16, products summed in f32, the two of a unit as the processor does it
//   int8  x quantised by its row (largest magnitude / 127), exact 32-bit sums, then two scales
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/element_type.h"
#include "kernels/matrix.h"
#include "kernels/stream.h"

namespace lmtp::kernels {

inline constexpr int kPanelColumns = 32;

// kF16 is for devices; kInt8 for CPUs.
enum class WeightType { kF32, kBF16, kInt8, kF16 };

// Inputs of one unit.
constexpr int inputs_per_unit(WeightType type) {
  return type == WeightType::kF32 ? 1 : type == WeightType::kInt8 ? 4 : 2;
}

// The type of numbers that lie beside weights of that type, such as keys and values; on a device of
// the weights themselves. int8 is for weights alone: bf16.
constexpr ElementType element_type(WeightType type) {
  return type == WeightType::kF32   ? ElementType::kF32
         : type == WeightType::kF16 ? ElementType::kF16
                                    : ElementType::kBF16;
}

// Owner of the memory: somebody else. Panels are 64-byte aligned.
struct PackedLinear {
  const void* panels = nullptr;
  std::int64_t n = 0;  // outputs
  std::int64_t k = 0;  // inputs
  WeightType type = WeightType::kF32;
  // kInt8 alone, [n rounded up to kPanelColumns]: a column's scale, and the sum of its weights.
  const float* scales = nullptr;
  const std::int32_t* sums = nullptr;

  std::int64_t num_units() const { return (k + inputs_per_unit(type) - 1) / inputs_per_unit(type); }
};

constexpr std::int64_t padded_columns(std::int64_t n) {
  return (n + kPanelColumns - 1) / kPanelColumns * kPanelColumns;
}

// 32-bit units that a packed weight takes.
constexpr std::int64_t packed_size(std::int64_t n, std::int64_t k,
                                   WeightType type = WeightType::kF32) {
  return padded_columns(n) * ((k + inputs_per_unit(type) - 1) / inputs_per_unit(type));
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
  const float* bias = nullptr;  // [n] f32, or null; as the weight, not written by ops under way
  Activation activation = Activation::kNone;
  Matrix<const float> residual = {};  // [m, n] f32, or empty; may be y itself
  Matrix<float> y;                    // [m, n] f32; must not overlap x
};

void linear(Stream& stream, const LinearArgs& args);

// How the vector kernels of a CPU pass over weights; the bits are the same for every shape.
struct LinearShape {
  // Up to so many rows take one pass, their sums in registers; at most the 12 (6 where there are 16
  // registers) of a tile. 1 at least.
  int narrow_rows = 1;
  // More rows pass over so many panels side by side, so many units of each between two visits to
  // their sums in memory.
  int block_panels = 1;
  std::int64_t block_units = 128;
};

enum class WeightOrder {
  kOutputsByInputs,  // [n, k]: torch's Linear, an embedding
  kInputsByOutputs,  // [k, n]: GPT-2's Conv1D
};

// A weight as a checkpoint holds it; may be unaligned.
struct SourceWeight {
  const void* data = nullptr;
  ElementType type = ElementType::kF32;
  WeightOrder order = WeightOrder::kOutputsByInputs;
  std::int64_t n = 0;
  std::int64_t k = 0;
};

// Gives a weight piece by piece while it is packed, so that a piece is still in the caches then.
class WeightRows {
 public:
  virtual ~WeightRows() = default;
  // Where rows [first, first + count) of the source lie behind one another: outputs or inputs, as
  // its order has them. Valid until the same worker asks again. Null: they cannot be had, and what
  // is packed is undefined. Any worker, in [0, pool.num_threads()).
  virtual const void* rows(std::int64_t first, std::int64_t count, int worker) = 0;
};

// Where a packed weight goes.
struct PackTarget {
  void* panels = nullptr;  // packed_size(n, k, type) units
  WeightType type = WeightType::kF32;
  float* scales = nullptr;       // kInt8: [padded_columns(n)]
  std::int32_t* sums = nullptr;  // kInt8: [padded_columns(n)]
};

// Rounds to nearest, ties to even, where the type is narrower than the source.
void pack_linear(WorkerPool& pool, const SourceWeight& source, const PackTarget& to);
// The same of what `rows` gives; source.data is not looked at. int8 of inputs by outputs asks for
// all rows twice.
void pack_rows(WorkerPool& pool, const SourceWeight& source, WeightRows& rows,
               const PackTarget& to);

// On a device, whose backend lays weights out in its own way: bytes of a packed weight, and its
// packing from memory of that device. `to.panels` is 256-byte aligned. REQUIRES: the stream is
// synchronised before a linear takes the weight, which it begins to read while what is ahead of it
// in the stream may still run.
std::size_t packed_bytes(const Backend& backend, WeightType type, std::int64_t n, std::int64_t k);
void pack_on_device(Stream& stream, const SourceWeight& source, const PackTarget& to);

// The element [n, k] of a weight packed on the host.
float packed_element(const PackedLinear& weight, std::int64_t n, std::int64_t k);

// to[i] = from[i] as f32, for a tensor that is not a matrix product's.
void convert_to_f32(const void* from, ElementType type, std::int64_t count, float* to);

}  // namespace lmtp::kernels
