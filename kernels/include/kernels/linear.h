// y = activation(x W^T + bias) * scale + residual, with W packed once for streaming.
//
// Packed layout: [ceil(n / kPanelColumns)][units][kPanelColumns] of 32 bits each, missing columns
// and inputs zero. A unit is one f32 input, two bf16 or four int8. One vector lane is one output
// column, and its value is one chain of operations over units 0, 1, ...: the same chain whatever
// the number of rows, so a row's bits do not depend on its neighbours.
//   f32   fused multiply-adds
//   bf16  x rounded to bf16, products summed in f32, the two of a unit as the processor does it
//   int8  x quantised by its row (largest magnitude / 127), exact 32-bit sums, then two scales
//   f32 kept as bf16 or f16, of a weight whose numbers are such: the operations of f32, on weights
//         that are widened in registers. f16's units are apart: 16 columns of one input, then of
//         the other (half_index).
//
// Weights by groups (kernels/grouping.h) have another layout: [ceil(n / kPanelColumns)] panels of
// groups one after the other, each with its columns' scales, their offsets if there are any, and
// words of codes [inputs / codes_per_word][kPanelColumns].
//   kInt4     x quantised by its row and group, of each group an exact 32-bit sum of products, then
//             one fused multiply-add: sum += products * (scale of x * scale)
//   kWidened  the operations of f32 on weights that are widened in registers
//
// A device has layouts of its own (cuda/linear.h, cuda/linear_narrow.h). Its kInt8 has the sums and
// scales above; kInt4 and kWidened are its products of bf16 or f16, Grouping::widened_to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>

#include "kernels/activation.h"
#include "kernels/element_type.h"
#include "kernels/grouping.h"
#include "kernels/matrix.h"
#include "kernels/norm.h"
#include "kernels/stream.h"

namespace lmtp::kernels {

inline constexpr int kPanelColumns = 32;

// Inputs of a matrix of int8: the sum of so many products has 32 bits.
inline constexpr std::int64_t kInt8InputsMax = std::int64_t{1} << 16;

// kF16 is for devices; kF32AsBF16 and kF32AsF16 are for the host.
enum class WeightType { kF32, kBF16, kInt8, kF16, kInt4, kWidened, kF32AsBF16, kF32AsF16 };

constexpr bool is_grouped(WeightType type) {
  return type == WeightType::kInt4 || type == WeightType::kWidened;
}
constexpr bool is_for_host(WeightType type) { return type != WeightType::kF16; }
// f32 that is kept in 16 bits.
constexpr bool is_kept_narrow(WeightType type) {
  return type == WeightType::kF32AsBF16 || type == WeightType::kF32AsF16;
}

// Inputs of one unit; by groups, of x alone.
constexpr int inputs_per_unit(WeightType type) {
  switch (type) {
    case WeightType::kF32:
    case WeightType::kWidened:
      return 1;
    case WeightType::kInt8:
    case WeightType::kInt4:
      return 4;
    case WeightType::kBF16:
    case WeightType::kF16:
    case WeightType::kF32AsBF16:
    case WeightType::kF32AsF16:
      return 2;
  }
  return 1;
}

// The element type of keys and values in a model with weights of that type; on a device also of the
// weights themselves. bf16 for those that are for weights alone.
constexpr ElementType element_type(WeightType type) {
  return type == WeightType::kF32 || is_kept_narrow(type) ? ElementType::kF32
         : type == WeightType::kF16                       ? ElementType::kF16
                                                          : ElementType::kBF16;
}

// Does not own its memory. Panels are 64-byte aligned.
struct PackedLinear {
  const void* panels = nullptr;
  std::int64_t n = 0;  // outputs
  std::int64_t k = 0;  // inputs
  WeightType type = WeightType::kF32;
  // On the host, of kInt8 alone, [n rounded up to kPanelColumns]: a column's scale, and the sum of
  // its weights.
  const float* scales = nullptr;
  const std::int32_t* sums = nullptr;
  Grouping grouping = {};  // by groups alone

  // Not of weights by groups.
  std::int64_t num_units() const { return (k + inputs_per_unit(type) - 1) / inputs_per_unit(type); }
};

// Of kF32AsF16: where in a panel, in numbers of 16 bits, input k of a column is.
inline constexpr std::int64_t kHalvesColumns = 16;
constexpr std::int64_t half_index(std::int64_t k, std::int64_t column) {
  return k / 2 * (2 * kPanelColumns) + column / kHalvesColumns * (2 * kHalvesColumns) +
         k % 2 * kHalvesColumns + column % kHalvesColumns;
}

// How a weight of that type is kept in the least memory that has all its numbers.
constexpr WeightType kept_type(WeightType type, ElementType of_source, std::int64_t k) {
  if (type != WeightType::kF32 || k % 2 != 0) return type;
  return of_source == ElementType::kBF16  ? WeightType::kF32AsBF16
         : of_source == ElementType::kF16 ? WeightType::kF32AsF16
                                          : type;
}

constexpr std::int64_t padded_columns(std::int64_t n) {
  return (n + kPanelColumns - 1) / kPanelColumns * kPanelColumns;
}

// 32-bit units in front of a group's codes in a panel: scales and offsets.
constexpr std::int64_t group_head_size(const Grouping& grouping) {
  return kPanelColumns * (element_size(grouping.scales) + (grouping.has_offsets ? 4 : 0)) / 4;
}

// 32-bit units that a panel takes.
constexpr std::int64_t panel_size(std::int64_t k, WeightType type, const Grouping& grouping) {
  if (!is_grouped(type)) {
    return kPanelColumns * ((k + inputs_per_unit(type) - 1) / inputs_per_unit(type));
  }
  return num_groups(grouping, k) * group_head_size(grouping) +
         kPanelColumns * padded_inputs(k) / codes_per_word(grouping.codes);
}

// And the whole weight.
constexpr std::int64_t packed_size(std::int64_t n, std::int64_t k,
                                   WeightType type = WeightType::kF32,
                                   const Grouping& grouping = {}) {
  return padded_columns(n) / kPanelColumns * panel_size(k, type, grouping);
}

// What x goes through first. REQUIRES: the op's y is the linear's x.
using LinearPrologue =
    std::variant<std::monostate, LayerNormArgs, RmsNormArgs, GatedActivationArgs>;

// The op by itself, if there is one.
void run_prologue(Stream& stream, const LinearPrologue& prologue);

struct LinearArgs {
  Matrix<const float> x;        // [m, k] f32
  PackedLinear weight;          // [n, k]
  const float* bias = nullptr;  // [n] f32, or null; as the weight, not written by running ops
  Activation activation = Activation::kNone;
  float scale = 1.0F;
  Matrix<const float> residual = {};  // [m, n] f32, or empty; may be y itself
  Matrix<float> y;                    // [m, n] f32; must not overlap x
  // Where x is rounded by a launch of its own, on a device, that does both: what x holds afterwards
  // is not defined. Bits are those of the op by itself.
  LinearPrologue prologue = {};
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
  float* scales = nullptr;       // kInt8 on the host: [padded_columns(n)]
  std::int32_t* sums = nullptr;  // kInt8 on the host: [padded_columns(n)]
  Grouping grouping = {};        // by groups
};

// Rounds to nearest, ties to even, where the type is narrower than the source. f32 that is kept in
// 16 bits: REQUIRES: the source is of that type, and k is even. kInt4: without
// offsets, scales in bf16; a group's scale is its number of largest magnitude / -8, and 1 where
// that is next to 0.
// REQUIRES: not kWidened, whose codes come from elsewhere.
void pack_linear(WorkerPool& pool, const SourceWeight& source, const PackTarget& to);
// pack_linear of the rows that `rows` supplies; source.data is not used. int8 of kInputsByOutputs
// reads all rows twice.
void pack_rows(WorkerPool& pool, const SourceWeight& source, WeightRows& rows,
               const PackTarget& to);

// to[i, j] = x[i, inputs[j]], for a weight whose inputs were packed in another order. [m, k] each,
// not overlapping. For CPUs.
void order_inputs(Stream& stream, Matrix<const float> x, const std::int32_t* inputs,
                  Matrix<float> to);

// Codes, scales and offsets of some outputs.
struct CodePiece {
  std::uint8_t* codes = nullptr;  // [count][k], one a byte
  float* scales = nullptr;        // [count][num_groups]
  float* offsets = nullptr;       // as scales; null where there are none
};

// Supplies a weight that is given as codes.
class CodeRows {
 public:
  virtual ~CodeRows() = default;
  // Fills in the outputs [first, first + count). False: they cannot be read, and the packed weight
  // is undefined. Any worker, in [0, pool.num_threads()).
  virtual bool rows(std::int64_t first, std::int64_t count, int worker, const CodePiece& to) = 0;
};

// Packs codes as they are. Scales that `to.grouping` keeps in 16 bits are rounded to nearest.
// REQUIRES: kInt8: codes of 8 bits, one scale an output, no offsets; kInt4: codes of 4
// bits, a group of 32, 64 or 128, no offsets. No code is e4m3's NaN.
void pack_codes(WorkerPool& pool, std::int64_t n, std::int64_t k, CodeRows& rows,
                const PackTarget& to);

// As a backend's linear takes weights (a device's have a layout of their own): bytes of the panels,
// and packing from memory where its ops run. `to.panels` is aligned as Memory. REQUIRES: the stream
// is synchronised before a linear takes the weight, since on a device a linear reads weights before
// earlier launches have ended.
std::size_t packed_bytes(const Backend& backend, WeightType type, std::int64_t n, std::int64_t k,
                         const Grouping& grouping = {});
// As pack_linear. REQUIRES: kInt4: the grouping is the default but for widened_to.
void pack(Stream& stream, const SourceWeight& source, const PackTarget& to);

// The outputs [first, first + count) of a weight [n, k], in memory where the ops run.
struct SourceCodes {
  const std::uint8_t* codes = nullptr;  // [count][k], one a byte
  const float* scales = nullptr;        // [count][num_groups]
  const float* offsets = nullptr;       // as scales, or null
  std::int64_t first = 0;               // a multiple of kPanelColumns
  std::int64_t count = 0;               // likewise, or up to n
  std::int64_t n = 0;
  std::int64_t k = 0;
};
// pack_codes of these outputs, for devices.
void pack_codes(Stream& stream, const SourceCodes& source, const PackTarget& to);

// The element [n, k] of a weight packed on the host.
float packed_element(const PackedLinear& weight, std::int64_t n, std::int64_t k);

// to[i] = from[i] as f32, for tensors that are not weights of a linear.
void convert_to_f32(const void* from, ElementType type, std::int64_t count, float* to);

}  // namespace lmtp::kernels
