// y = activation(x W^T + bias) * scale + residual on a device, with one order of sums for every
// number of rows.
//
// bf16, f16: weights are operand A, in tiles (fragment_tile.h), an output a row; a row of x is a
// column of the product, so that eight rows cost what one does. The inputs are cut into slices,
// which depend on n and k alone. A slice is one chain of mma.m16n8k16 from zero, 16 inputs at a
// time in order, x rounded to the weight's type; the slices are summed in order in f32, then come
// bias, activation and residual. Few rows stream the weights once, a warp a slice
// (linear_stream.cuh); many rows go by tiles through shared memory (linear_tiled.cuh), of few
// outputs with several blocks for the slices of an output, or by products of warp groups where the
// device has them (linear_wgmma.h), which add as mma.m16n8k16 does: the same sums in the same
// order, so a row's bits are the same.
// f32, for checks: [ceil(n / 32)][k][32], the CPU's panels; one chain of fused multiply-adds.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/device_types.h"
#include "kernels/linear.h"

namespace lmtp::kernels::cuda {

// How the inputs are cut: slices of `tiles` tiles of 16 inputs, the last one of the rest.
struct Slices {
  int count = 1;
  int tiles = 0;
};
inline constexpr int kSlicesMax = 16;
// Slices begin at multiples of this many tiles.
inline constexpr int kSliceUnit = 4;
Slices slices_of(std::int64_t n, std::int64_t k);

// Bytes that a packed weight takes.
std::size_t weight_bytes(ElementType type, std::int64_t n, std::int64_t k);

// A matrix of a checkpoint in the device's memory: element (n, k) is n * row_stride +
// k * column_stride elements from `data`, aligned to its type.
struct WeightSource {
  const void* data = nullptr;
  ElementType type = ElementType::kF32;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 1;
};

// Destination: row i becomes row first_row + i, or target_rows[i], of a weight [n, k].
struct WeightTarget {
  void* weight =
      nullptr;  // weight_bytes(type, n, k), zero before the first part comes; 16-byte aligned
  ElementType type = ElementType::kBF16;
  std::int64_t n = 0;
  std::int64_t first_row = 0;
  const std::int32_t* target_rows = nullptr;  // [source.n] in the device's memory, or null
};

// Rounds to nearest, ties to even. REQUIRES: every target row is in [0, to.n); the stream is
// synchronised before linear() takes the weight.
void pack_weight(const WeightSource& source, const WeightTarget& to, StreamHandle stream);

// What blocks leave for one another that share an output's slices. Null: none do.
struct SplitMemory {
  float* partials = nullptr;          // SplitBytes::partials, 16-byte aligned
  std::uint32_t* counters = nullptr;  // zeros, and zeros again when the op has run
};
struct SplitBytes {
  std::size_t partials = 0;
  std::size_t counters = 0;
};

struct LinearLaunch {
  const float* x = nullptr;  // [m, k] f32, rows x_stride elements apart
  std::int64_t x_stride = 0;
  std::int64_t m = 0;            // > 0
  const void* weight = nullptr;  // not written by a launch that may still run
  ElementType type = ElementType::kBF16;
  std::int64_t n = 0;
  std::int64_t k = 0;
  const float* bias = nullptr;  // [n] f32, or null; not written by a launch that may still run
  Activation activation = Activation::kNone;
  float scale = 1.0F;
  const float* residual = nullptr;  // [m, n] f32, or null; may be y itself
  std::int64_t residual_stride = 0;
  float* y = nullptr;  // [m, n] f32; must not overlap x
  std::int64_t y_stride = 0;
  void* scratch = nullptr;  // linear_scratch_bytes(), 16-byte aligned
  SplitMemory split = {};
  int splits = 1;  // for tests: blocks of a kernel by tiles that share an output's slices
};

// All but kBest are for tests. Tiled: blocks of outputs x rows, for any number of rows, as are
// those by warp groups, of one block for all slices or a cluster's, one or two each. kStream: up to
// 64 rows.
enum class LinearKernel {
  kBest,
  kStream,
  kTiled128x128,
  kTiled128x64,
  kTiled64x64,
  kWgmma,
  kWgmmaCluster,
  kWgmmaClusterBy2
};

// A product by tiles: m rows by n outputs of k_tiles tiles of inputs.
struct TiledProblem {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k_tiles = 0;
  Slices slices = {};
  bool is_exact = false;  // sums of whole numbers: those of a block's slices are one
};
struct TiledPlan {
  LinearKernel kernel = LinearKernel::kTiled64x64;
  int slices_each = 1;  // that a block takes; the last the rest
  int splits = 1;       // blocks that share an output's slices
  std::int64_t num_blocks = 0;
  SplitBytes bytes = {};
};
// By that kernel; `splits`: about so many.
TiledPlan tiled_plan(const TiledProblem& problem, LinearKernel kernel, int splits);
// What kBest selects for more rows than linear_stream.cuh takes, on a device without wgmma (of
// whole numbers on any) that has so many multiprocessors.
TiledPlan tiled_plan_for(const TiledProblem& problem, int num_multiprocessors, bool may_split);

// Of a launch of kBest on this thread's device; and what none exceeds within the limits.
SplitBytes linear_split_bytes(ElementType type, std::int64_t m, std::int64_t n, std::int64_t k);
SplitBytes split_bytes_max(const OpLimits& limits);

// Whether m rows by weights of that type are rounded by a launch of their own that can take the
// prologue with it.
bool takes_prologue(std::int64_t m, ElementType type, const LinearPrologue& prologue);

std::size_t linear_scratch_bytes(ElementType type, std::int64_t m, std::int64_t k);
void linear(const LinearLaunch& args, StreamHandle stream,
            LinearKernel kernel = LinearKernel::kBest);
// Of what the prologue leaves, for args.x: that is not written. REQUIRES: takes_prologue().
void linear(const LinearLaunch& args, const LinearPrologue& prologue, StreamHandle stream);

}  // namespace lmtp::kernels::cuda
