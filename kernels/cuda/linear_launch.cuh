// Which kernels of the linear are launched, for the types of weights that share them.
#pragma once

#include <bit>
#include <cstdint>

#include "cuda/linear_stream.cuh"
#include "cuda/linear_tiled.cuh"
#include "lmtp/base/check.h"

namespace lmtp::kernels::cuda {

// Rows whose weights are streamed. Of codes fewer: what widens them needs the registers.
template <typename T>
inline constexpr int kStreamRowsMax = kIsNarrow<T> ? 32 : 64;

template <typename T, int kOutputTiles, int kRowEights>
void launch_stream(const LinearParams& p, StreamHandle stream) {
  const StreamBlock block = stream_block(p.slices.count);
  const std::int64_t tiles_each = block.groups * kOutputTiles;
  const LaunchShape shape = {
      .grid = {static_cast<int>(ceil_divide(num_tiles(p.args.n), tiles_each))},
      .num_threads = block.num_warps() * kWarpSize,
      .shared_bytes = stream_shared_bytes<kRowEights>(block.num_warps())};
  launch<linear_stream_kernel<T, kOutputTiles, kRowEights>>(shape, stream, p);
}

// Outputs of one warp share its loads of x: several tiles, as long as every multiprocessor has
// blocks. Codes, which are widened in registers, take one.
template <typename T, int kRowEights>
void launch_stream(const LinearParams& p, StreamHandle stream) {
  if constexpr (!kIsNarrow<T>) {
    const std::int64_t groups = stream_block(p.slices.count).groups;
    const std::int64_t blocks = ceil_divide(num_tiles(p.args.n), groups);
    const std::int64_t wanted = 2 * num_multiprocessors();
    const bool half_block = p.slices.count <= kSlicesMax / 2;
    if constexpr (kRowEights > 1) {
      if (half_block && blocks >= 4 * wanted) {
        launch_stream<T, 4, kRowEights>(p, stream);
        return;
      }
    }
    if (half_block && blocks >= 2 * wanted) {
      launch_stream<T, 2, kRowEights>(p, stream);
      return;
    }
  }
  launch_stream<T, 1, kRowEights>(p, stream);
}

// Rows whose inputs are in p.x_tiles.
template <typename T>
void launch_stream_of_tiles(const LinearParams& p, StreamHandle stream) {
  LMTP_CHECK(p.args.m <= kStreamRowsMax<T>, p.args.m);
  if (p.args.m <= 16) {
    launch_stream<T, 2>(p, stream);
  } else if (p.args.m <= 32) {
    launch_stream<T, 4>(p, stream);
  } else if constexpr (kStreamRowsMax<T> > 32) {
    launch_stream<T, 8>(p, stream);
  }
}

// x rounded to args.type, in tiles at args.scratch (round_inputs.cuh).
void launch_round_inputs(const LinearParams& p, StreamHandle stream);

// Rows that are read as f32, where they can be.
inline constexpr int kFloatRowsMax = 8;

// From f32 inputs.
template <typename T>
void launch_few_rows(LinearParams p, StreamHandle stream) {
  if (p.args.m <= kFloatRowsMax && p.x_aligned && p.args.k % kTileSide == 0) {
    launch_stream<T, 1>(p, stream);
    return;
  }
  p.x_tiles = static_cast<const Words4*>(p.args.scratch);
  launch_round_inputs(p, stream);
  launch_stream_of_tiles<T>(p, stream);
}

template <typename T, typename Shape>
void launch_tiled(const LinearParams& p, int splits, StreamHandle stream) {
  launch<linear_tiled_kernel<T, Shape>>({.grid = tiled_grid<Shape>(p.args.m, p.args.n, splits),
                                         .num_threads = Shape::kThreads,
                                         .shared_bytes = Shape::kSharedBytes,
                                         .cluster = 1,
                                         .overlaps = !p.weight_is_fresh},
                                        stream, p);
}

// REQUIRES: a kernel by tiles, or kBest.
template <typename T>
void launch_tiled(LinearParams p, StreamHandle stream, LinearKernel kernel) {
  const TiledProblem problem = {p.args.m, p.args.n, p.k_tiles, p.slices, kIsExact<T>};
  const TiledPlan plan =
      kernel == LinearKernel::kBest
          ? tiled_plan_for(problem, num_multiprocessors(), p.args.split.counters != nullptr)
          : tiled_plan(problem, kernel, p.args.splits);
  p.slices_each = plan.slices_each;
  if (plan.kernel == LinearKernel::kTiled128x128) {
    launch_tiled<T, Tiled128x128>(p, plan.splits, stream);
  } else if (plan.kernel == LinearKernel::kTiled128x64) {
    launch_tiled<T, Tiled128x64>(p, plan.splits, stream);
  } else {
    launch_tiled<T, Tiled64x64>(p, plan.splits, stream);
  }
}

// Many rows by weights in tiles of args.type, in two launches: x into tiles at args.scratch, as the
// kernel reads them, then products with these. The second may be called again for other outputs.
void launch_round_many(const LinearParams& p, StreamHandle stream, LinearKernel kernel);
void launch_many_rows(const LinearParams& p, StreamHandle stream, LinearKernel kernel);

inline LinearParams linear_params(const LinearLaunch& args) {
  return {.args = args,
          .k_tiles = static_cast<int>(num_tiles(args.k)),
          .slices = slices_of(args.n, args.k),
          .x_aligned = args.x_stride % 4 == 0 && std::bit_cast<std::uintptr_t>(args.x) % 16 == 0};
}

}  // namespace lmtp::kernels::cuda
