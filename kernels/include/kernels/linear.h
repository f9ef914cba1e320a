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

// The element type of keys and values in a model with weights of that type; on a device also of the
// weights themselves. bf16 for int8, which is for weights alone.
constexpr ElementType element_type(WeightType type) {
  return type == WeightType::kF32   ? ElementType::kF32
         : type == WeightType::kF16 ? ElementType::kF16
                                    : ElementType::kBF16;
}

// Does not own its memory. Panels are 64-byte aligned.
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
  const float* bias = nullptr;  // [n] f32, or null; as the weight, not written by running ops
  Activation activation = Activation::kNone;
  Matrix<const float> residual = {};  // [m, n] f32, or empty; may be y itself
  Matrix<float> y;                    // [m, n] f32; must not overlap x
};

void linear(Stream& stream, const LinearArgs& args);

// How the vector kernels of a CPU pass over weights; the bits are the same for every shape.
struct LinearShape {
  // GEMV: up to this many rows take one pass over the weights, their sums in registers. From 1 to
  // the rows of a tile, 12 (6 with 16 registers).
  int gemv_rows_max = 1;
  // GEMM: more rows take blocks of so many panels and units; sums rest in memory between blocks.
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

// Supplies a weight piece by piece while it is packed, so that a piece is still in the caches then.
class WeightRows {
 public:
  virtual ~WeightRows() = default;
  // Rows [first, first + count) of the source, contiguous: outputs or inputs, by its order. Valid
  // until the worker's next call. Null: they cannot be read, and the packed weight is undefined.
  // Any worker, in [0, pool.num_threads()).
  virtual const void* rows(std::int64_t first, std::int64_t count, int worker) = 0;
};

// Destination of a packed weight.
struct PackTarget {
  void* panels = nullptr;  // packed_size(n, k, type) units
  WeightType type = WeightType::kF32;
  float* scales = nullptr;       // kInt8: [padded_columns(n)]
  std::int32_t* sums = nullptr;  // kInt8: [padded_columns(n)]
};

// Rounds to nearest, ties to even, where the type is narrower than the source.
void pack_linear(WorkerPool& pool, const SourceWeight& source, const PackTarget& to);
// pack_linear of the rows that `rows` supplies; source.data is not used. int8 of kInputsByOutputs
// reads all rows twice.
void pack_rows(WorkerPool& pool, const SourceWeight& source, WeightRows& rows,
               const PackTarget& to);

// As a backend's linear takes weights (a device's have a layout of their own): bytes of the panels,
// and packing from memory where its ops run. `to.panels` is aligned as Memory. REQUIRES: the stream
// is synchronised before a linear takes the weight, since on a device a linear reads weights before
// earlier launches have ended.
std::size_t packed_bytes(const Backend& backend, WeightType type, std::int64_t n, std::int64_t k);
void pack(Stream& stream, const SourceWeight& source, const PackTarget& to);

// The element [n, k] of a weight packed on the host.
float packed_element(const PackedLinear& weight, std::int64_t n, std::int64_t k);

// to[i] = from[i] as f32, for tensors that are not weights of a linear.
void convert_to_f32(const void* from, ElementType type, std::int64_t count, float* to);

}  // namespace lmtp::kernels
