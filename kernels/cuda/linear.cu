#include "cuda/linear.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>

#include "cuda/linear_launch.cuh"
#include "cuda/linear_wgmma.h"
#include "cuda/round_inputs.cuh"
#include "cuda/round_prologue.h"
#include "kernels/device.h"
#include "lmtp/base/check.h"

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

template <typename Shape>
TiledPlan plan_of(const TiledProblem& p, LinearKernel kernel, int slices_each) {
  const int splits = ceil_divide(p.slices.count, slices_each);
  const Grid grid = tiled_grid<Shape>(p.m, p.n, splits);
  TiledPlan plan = {kernel, slices_each, splits, std::int64_t{grid.x} * grid.y * splits, {}};
  if (splits > 1) {
    const auto shared = static_cast<std::size_t>(plan.num_blocks / splits);
    const int partials = num_partials(p.slices, slices_each, splits, p.is_exact);
    plan.bytes.partials = shared * static_cast<std::size_t>(partials) * Shape::kPartialBytes;
    plan.bytes.counters = shared * sizeof(std::uint32_t);
  }
  return plan;
}

// Estimated time of a plan, in products of two tiles by a multiprocessor, times the
// multiprocessors: the longest of the busiest multiprocessor's products, of its loads and of all
// loads and stores from L2; then what the block that is done last has to do alone.
template <typename Shape>
std::int64_t tiled_cost(const TiledProblem& p, const TiledPlan& plan,
                        std::int64_t num_multiprocessors) {
  // A tile's 512 bytes against a product's 8,192 operations, on an H100 whose L2 gives 7.5 TB/s (an
  // assumption) and mma.sync 62 % of 989 TFLOP/s (arXiv 2402.13499). To be set by gpu-bench cuda
  // linear 256 3072x1024,1024x1024,4096x1024,1024x4096, as are the two below.
  constexpr std::int64_t kProductsPerLoad = 5;
  // Of a multiprocessor while others load little, halves of a product: 64 bytes a clock.
  constexpr std::int64_t kHalvesPerLoadAlone = 5;
  // Stores that are waited for, a count and the first loads behind it: about 2 us.
  constexpr std::int64_t kProductsOfMerge = 1000;
  constexpr std::int64_t kLoadsOfPartial = 2;  // f32 of 16 outputs by 16 rows
  constexpr std::int64_t kTiles = Shape::kOutputs + Shape::kRows;
  constexpr std::int64_t kProducts = Shape::kOutputs * Shape::kRows;
  const std::int64_t k_tiles =
      std::min<std::int64_t>(p.k_tiles, std::int64_t{plan.slices_each} * p.slices.tiles);
  const std::int64_t turns = ceil_divide(plan.num_blocks, num_multiprocessors) * k_tiles;
  const std::int64_t shared = plan.num_blocks / plan.splits;
  const auto partial_loads = static_cast<std::int64_t>(plan.bytes.partials / Shape::kPartialBytes) *
                             kProducts * kLoadsOfPartial;  // of all blocks, and as many stores
  const std::int64_t alone = std::max(turns * kProducts, turns * kTiles * kHalvesPerLoadAlone / 2);
  const std::int64_t all = shared * kTiles * p.k_tiles + 2 * partial_loads;
  const std::int64_t merge =
      plan.splits == 1 ? 0 : kProductsOfMerge + partial_loads / shared * kHalvesPerLoadAlone / 2;
  return std::max(num_multiprocessors * alone, kProductsPerLoad * all) +
         num_multiprocessors * merge;
}

struct CostlyPlan {
  std::int64_t cost = std::numeric_limits<std::int64_t>::max();
  TiledPlan plan = {};
};

// Takes a plan of that shape where it costs less: of one block for all slices, or of several where
// these blocks would leave multiprocessors without any.
template <typename Shape>
void consider(const TiledProblem& p, LinearKernel kernel, std::int64_t num_multiprocessors,
              bool splits, CostlyPlan& best) {
  const int count = p.slices.count;
  const TiledPlan whole = plan_of<Shape>(p, kernel, count);
  if (splits && whole.num_blocks >= num_multiprocessors) return;
  for (int each = splits ? count - 1 : count; each >= (splits ? 1 : count); --each) {
    const TiledPlan plan = plan_of<Shape>(p, kernel, each);
    const std::int64_t cost = tiled_cost<Shape>(p, plan, num_multiprocessors);
    const bool fits = plan.bytes.partials <= std::size_t{kPartialBytesMax};
    if (fits && cost < best.cost) best = {cost, plan};
  }
}

CostlyPlan best_plan(const TiledProblem& p, std::int64_t num_multiprocessors, bool splits) {
  CostlyPlan best;
  consider<Tiled128x128>(p, LinearKernel::kTiled128x128, num_multiprocessors, splits, best);
  consider<Tiled128x64>(p, LinearKernel::kTiled128x64, num_multiprocessors, splits, best);
  consider<Tiled64x64>(p, LinearKernel::kTiled64x64, num_multiprocessors, splits, best);
  return best;
}

}  // namespace

TiledPlan tiled_plan(const TiledProblem& problem, LinearKernel kernel, int splits) {
  const int slices_each = ceil_divide(problem.slices.count, splits);
  if (kernel == LinearKernel::kTiled128x128) {
    return plan_of<Tiled128x128>(problem, kernel, slices_each);
  }
  if (kernel == LinearKernel::kTiled128x64) {
    return plan_of<Tiled128x64>(problem, kernel, slices_each);
  }
  LMTP_CHECK(kernel == LinearKernel::kTiled64x64);
  return plan_of<Tiled64x64>(problem, kernel, slices_each);
}

// Large blocks load less for a product, small ones and shared ones occupy more multiprocessors:
// takes the least tiled_cost(), of equal costs the larger shape. That is an estimate until
// gpu-bench has measured, so blocks share outputs only where it is a tenth less. Not offered: 32x64
// would be a block a multiprocessor where 64x64 is half a one, but loads half as much again, and by
// the estimate then waits for L2 longer.
TiledPlan tiled_plan_for(const TiledProblem& problem, int num_multiprocessors, bool may_split) {
  // Each launch asks twice, for the memory and for the kernel, and there are some fifty to compare.
  using Key = std::array<std::int64_t, 7>;
  constexpr std::size_t kPlansMax = 4096;
  thread_local std::map<Key, TiledPlan> known;
  const Key key = {num_tiles(problem.m), problem.n,           problem.k_tiles, problem.slices.count,
                   problem.is_exact,     num_multiprocessors, may_split};
  if (const auto found = known.find(key); found != known.end()) return found->second;
  if (known.size() == kPlansMax) known.clear();
  CostlyPlan best = best_plan(problem, num_multiprocessors, false);
  if (may_split) {
    const CostlyPlan shared = best_plan(problem, num_multiprocessors, true);
    if (shared.cost < best.cost / 10 * 9) best = shared;
  }
  return known[key] = best.plan;
}

SplitBytes linear_split_bytes(ElementType type, std::int64_t m, std::int64_t n, std::int64_t k) {
  if (type == ElementType::kF32 || m <= kStreamRowsMax<BF16> || has_wgmma()) return {};
  return tiled_plan_for({m, n, num_tiles(k), slices_of(n, k)}, num_multiprocessors(), true).bytes;
}

SplitBytes split_bytes_max(const OpLimits& limits) {
  // Where warp groups multiply, int8 alone goes by tiles.
  const bool has_tiles = limits.may_have_codes || limits.weight_type == WeightType::kInt8 ||
                         (limits.weight_type != WeightType::kF32 && !has_wgmma());
  if (!has_tiles) return {};
  return {std::size_t{kPartialBytesMax},
          static_cast<std::size_t>(num_multiprocessors()) * sizeof(std::uint32_t)};
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
