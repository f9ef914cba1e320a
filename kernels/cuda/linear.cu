#include "cuda/linear.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "cuda/linear_launch.cuh"
#include "cuda/linear_wgmma.h"
#include "cuda/round_inputs.cuh"
#include "cuda/round_prologue.h"

namespace lmtp::kernels::cuda {
namespace {

constexpr int kF32Rows = 4;    // of a warp
constexpr int kF32Panels = 4;  // of a block, a warp each

// One chain of fused multiply-adds an element, whatever the number of rows.
__global__ void __launch_bounds__(kF32Panels* kWarpSize) linear_f32_kernel(LinearLaunch args) {
  grid_dependency_wait();
  const std::int64_t n =
      (std::int64_t{block_index().x} * kF32Panels + warp_index()) * kPanelColumns + lane_index();
  const std::int64_t row0 = std::int64_t{block_index().y} * kF32Rows;
  if (n - lane_index() >= args.n) return;
  const float* weights =
      static_cast<const float*>(args.weight) + (n - lane_index()) * args.k + lane_index();
  float sums[kF32Rows] = {};
  for (std::int64_t k = 0; k < args.k; ++k) {
    const float weight = weights[k * kPanelColumns];
#pragma unroll
    for (int r = 0; r < kF32Rows; ++r) {
      if (row0 + r < args.m) {
        sums[r] = fmaf(args.x[(row0 + r) * args.x_stride + k], weight, sums[r]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kF32Rows; ++r) finish(args, row0 + r, n, sums[r]);
}

void launch_f32(const LinearLaunch& args, StreamHandle stream) {
  constexpr std::int64_t kColumns = kPanelColumns * kF32Panels;
  const Grid grid = {static_cast<int>(ceil_divide(args.n, kColumns)),
                     static_cast<int>(ceil_divide<std::int64_t>(args.m, kF32Rows))};
  launch<linear_f32_kernel>({.grid = grid, .num_threads = kF32Panels * kWarpSize}, stream, args);
}

// Whether weights are streamed. Where warp groups multiply, they take over from a few rows on if
// outputs are so many that each multiprocessor has a block of them, and before the last rows if a
// third has; an H200's turning points (docs/benchmarks/gpu.md).
bool is_streamed(const LinearLaunch& args, LinearKernel kernel) {
  if (kernel != LinearKernel::kBest) return kernel == LinearKernel::kStream;
  if (!has_wgmma()) return args.m <= kStreamRowsMax<BF16>;
  const std::int64_t blocks = ceil_divide<std::int64_t>(args.n, kWgmmaOutputs);
  if (blocks >= num_multiprocessors()) return args.m <= 16;
  return args.m <= (3 * blocks >= num_multiprocessors() ? 32 : kStreamRowsMax<BF16>);
}

// How warp groups divide the slices, where they are to multiply.
std::optional<WgmmaSlices> wgmma_slices(LinearKernel kernel) {
  if (kernel == LinearKernel::kWgmma) return WgmmaSlices::kOneBlock;
  if (kernel == LinearKernel::kWgmmaCluster) return WgmmaSlices::kCluster;
  if (kernel == LinearKernel::kWgmmaClusterBy2) return WgmmaSlices::kClusterBy2;
  if (kernel == LinearKernel::kBest && has_wgmma()) return WgmmaSlices::kBest;
  return std::nullopt;
}

// Row tiles that warp groups take together; 0: none multiply.
int row_tiles_for(std::int64_t m, LinearKernel kernel) {
  return wgmma_slices(kernel).has_value() ? static_cast<int>(wgmma_rows(m) / kTileSide) : 0;
}

template <typename T>
void round_many(const LinearParams& p, StreamHandle stream, LinearKernel kernel) {
  auto* tiles = static_cast<Words4*>(p.args.scratch);
  if (const int row_tiles = row_tiles_for(p.args.m, kernel); row_tiles > 0) {
    launch_round_to_cores<T>(p, row_tiles, tiles, stream);
  } else {
    launch_round_inputs<T>(p, tiles, stream);
  }
}

template <typename T>
void launch_linear(const LinearParams& p, StreamHandle stream, LinearKernel kernel) {
  if (is_streamed(p.args, kernel)) {
    launch_few_rows<T>(p, stream);
  } else {
    round_many<T>(p, stream, kernel);
    launch_many_rows(p, stream, kernel);
  }
}

// Estimated time of blocks of a shape for 16 inputs, in products of two tiles, times the
// multiprocessors: the longer of the busiest multiprocessor's products and of all loads from L2.
template <typename Shape>
std::int64_t tiled_cost(std::int64_t m, std::int64_t n, std::int64_t num_multiprocessors) {
  // A tile's 512 bytes against a product's 8,192 operations, on an H100 whose L2 gives 7.5 TB/s (an
  // assumption) and mma.sync 62 % of 989 TFLOP/s (arXiv 2402.13499). To be set by gpu-bench cuda
  // linear 256 3072x1024,1024x1024,4096x1024,1024x4096.
  constexpr std::int64_t kProductsPerLoad = 5;
  const Grid grid = tiled_grid<Shape>(m, n);
  const std::int64_t blocks = std::int64_t{grid.x} * grid.y;
  const std::int64_t turns = ceil_divide(blocks, num_multiprocessors);
  const std::int64_t products = turns * num_multiprocessors * Shape::kOutputs * Shape::kRows;
  const std::int64_t loads = blocks * (Shape::kOutputs + Shape::kRows);
  return std::max(products, kProductsPerLoad * loads);
}

}  // namespace

// Large blocks load less for a product, small ones occupy more multiprocessors: takes the least
// tiled_cost(), an estimate until gpu-bench has measured. Not offered: 32x64 would be a block a
// multiprocessor where 64x64 is half a one, but loads half as much again, and by the estimate then
// waits for L2 longer.
LinearKernel tiled_kernel_for(std::int64_t m, std::int64_t n, int num_multiprocessors) {
  using Choice = std::pair<std::int64_t, LinearKernel>;  // of equal costs the larger shape
  return std::min(
             {Choice(tiled_cost<Tiled128x128>(m, n, num_multiprocessors),
                     LinearKernel::kTiled128x128),
              Choice(tiled_cost<Tiled128x64>(m, n, num_multiprocessors),
                     LinearKernel::kTiled128x64),
              Choice(tiled_cost<Tiled64x64>(m, n, num_multiprocessors), LinearKernel::kTiled64x64)})
      .second;
}

Slices slices_of(std::int64_t n, std::int64_t k) {
  // kWarpsWanted warps keep a large device's memory busy; slices shorter than 128 inputs do not pay
  // for being summed.
  constexpr std::int64_t kWarpsWanted = 2048;
  constexpr std::int64_t kTilesMin = 8;
  const std::int64_t k_tiles = num_tiles(k);
  std::int64_t count = 4;
  while (count < kSlicesMax && num_tiles(n) * count < kWarpsWanted) count *= 2;
  while (count > 1 && k_tiles < count * kTilesMin) count /= 2;
  const std::int64_t tiles =
      ceil_divide<std::int64_t>(ceil_divide(k_tiles, count), kSliceUnit) * kSliceUnit;
  return {static_cast<int>(ceil_divide(k_tiles, tiles)), static_cast<int>(tiles)};
}

std::size_t weight_bytes(ElementType type, std::int64_t n, std::int64_t k) {
  const std::int64_t elements = type == ElementType::kF32
                                    ? padded_columns(n) * k
                                    : num_tiles(n) * num_tiles(k) * kTileElements;
  return static_cast<std::size_t>(elements * element_size(type));
}

std::size_t linear_scratch_bytes(ElementType type, std::int64_t m, std::int64_t k) {
  // Of whole blocks of rows, and whole stages of inputs.
  const std::int64_t rows = ceil_divide(m, wgmma_rows(m)) * wgmma_rows(m);
  const std::int64_t elements =
      type == ElementType::kF32 ? 0 : rows / kTileSide * core_tiles(num_tiles(k)) * kTileElements;
  return static_cast<std::size_t>(elements) * 2;
}

void launch_round_inputs(const LinearParams& p, StreamHandle stream) {
  auto* tiles = static_cast<Words4*>(p.args.scratch);
  if (p.args.type == ElementType::kBF16) {
    launch_round_inputs<BF16>(p, tiles, stream);
  } else {
    launch_round_inputs<F16>(p, tiles, stream);
  }
}

void launch_round_many(const LinearParams& p, StreamHandle stream, LinearKernel kernel) {
  if (p.args.type == ElementType::kBF16) {
    round_many<BF16>(p, stream, kernel);
  } else {
    round_many<F16>(p, stream, kernel);
  }
}

void launch_many_rows(const LinearParams& p, StreamHandle stream, LinearKernel kernel) {
  LinearParams of_tiles = p;
  of_tiles.x_tiles = static_cast<const Words4*>(p.args.scratch);
  if (const auto slices = wgmma_slices(kernel)) {
    launch_linear_wgmma(of_tiles, *slices, stream);
  } else if (p.args.type == ElementType::kBF16) {
    launch_tiled<BF16>(of_tiles, stream, kernel);
  } else {
    launch_tiled<F16>(of_tiles, stream, kernel);
  }
}

bool takes_prologue(std::int64_t m, ElementType type, const LinearPrologue& prologue) {
  // Whether fewer rows are read as f32 depends on more than their number.
  return m > kFloatRowsMax && type != ElementType::kF32 && rounds(prologue);
}

void linear(const LinearLaunch& args, const LinearPrologue& prologue, StreamHandle stream) {
  LinearParams p = linear_params(args);
  auto* tiles = static_cast<Words4*>(args.scratch);
  constexpr LinearKernel kBest = LinearKernel::kBest;
  const bool streamed = is_streamed(args, kBest);
  launch_round_prologue(prologue, args.type, streamed ? 0 : row_tiles_for(args.m, kBest), tiles,
                        stream);
  p.x_tiles = tiles;
  if (!streamed) {
    launch_many_rows(p, stream, kBest);
  } else if (args.type == ElementType::kBF16) {
    launch_stream_of_tiles<BF16>(p, stream);
  } else {
    launch_stream_of_tiles<F16>(p, stream);
  }
}

void linear(const LinearLaunch& args, StreamHandle stream, LinearKernel kernel) {
  if (args.type == ElementType::kF32) {
    launch_f32(args, stream);
    return;
  }
  const LinearParams p = linear_params(args);
  if (args.type == ElementType::kBF16) {
    launch_linear<BF16>(p, stream, kernel);
  } else {
    launch_linear<F16>(p, stream, kernel);
  }
}

}  // namespace lmtp::kernels::cuda
