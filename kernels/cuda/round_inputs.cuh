// Inputs into tiles, before a product of many rows.
#pragma once

#include "cuda/linear_common.cuh"

namespace lmtp::kernels::cuda {

// Tiles that the inputs of one row of them are, as wgmma() reads them: whole stages of kSliceUnit.
__host__ __device__ constexpr std::int64_t core_tiles(std::int64_t k_tiles) {
  return ceil_divide<std::int64_t>(k_tiles, kSliceUnit) * kSliceUnit;
}

// x rounded, as wgmma() reads it: [blocks of rows][core_tiles()][row_tiles] tiles, so that a
// stage's inputs of a block's rows lie together. What does not exist is zero, but row tiles without
// any row, which are not written. A warp reads whole lines of 8 rows, two tiles of each, and writes
// lines.
template <typename T>
__global__ void __launch_bounds__(256)
    round_to_cores_kernel(LinearParams p, int row_tiles, Words4* tiles) {
  grid_dependency_wait();
  const std::int64_t columns = core_tiles(p.k_tiles);
  const std::int64_t warp =
      std::int64_t{block_index().x} * (num_threads() / kWarpSize) + warp_index();
  const std::int64_t row_tile = warp / (columns / 2);
  if (row_tile >= num_tiles(p.args.m)) return;
  const std::int64_t k_tile = warp % (columns / 2) * 2 + lane_index() / 16;
  const int half = lane_index() / 8 % 2;
  float pairs[2][4][2];
#pragma unroll
  for (int upper = 0; upper < 2; ++upper) {
    const std::int64_t row = row_tile * kTileSide + upper * 8 + lane_index() % 8;
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      const std::int64_t column = k_tile * kTileSide + 4 * t + 2 * half;
      load_pair(p.args.x + row * p.args.x_stride + column, row >= p.args.m ? 0 : p.args.k - column,
                p.x_aligned, pairs[upper][t]);
    }
  }
  const std::int64_t tile =
      (row_tile / row_tiles * columns + k_tile) * row_tiles + row_tile % row_tiles;
#pragma unroll
  for (int upper = 0; upper < 2; ++upper) {
    Words4 vector;
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      vector.words[t] = round_pair<T>(pairs[upper][t][0], pairs[upper][t][1]);
    }
    store(tiles + tile * kTileVectors + upper * 16 + half * 8 + lane_index() % 8, vector);
  }
}

// x in tiles, rounded; rows and inputs that do not exist are zero. A thread makes a lane's part.
template <typename T>
__global__ void __launch_bounds__(256) round_inputs_kernel(LinearParams p, Words4* tiles) {
  grid_dependency_wait();
  const std::int64_t at = std::int64_t{block_index().x} * num_threads() + thread_index();
  const std::int64_t tile = at / kTileVectors;
  const int lane = static_cast<int>(at % kTileVectors);
  const std::int64_t row = tile / p.k_tiles * kTileSide + lane / 4;
  const std::int64_t column = tile % p.k_tiles * kTileSide + lane % 4 * 4;
  if (tile / p.k_tiles >= num_tiles(p.args.m)) return;
  Words4 vector = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (row + 8 * half < p.args.m) {
      const Floats4 x =
          load_four(p.args.x + (row + 8 * half) * p.args.x_stride, column, p.args.k, p.x_aligned);
      vector.words[half] = round_pair<T>(x.values[0], x.values[1]);
      vector.words[half + 2] = round_pair<T>(x.values[2], x.values[3]);
    }
  }
  store(tiles + at, vector);
}

template <typename T>
void launch_round_inputs(const LinearParams& p, Words4* tiles, StreamHandle stream) {
  constexpr int kThreads = 256;
  const std::int64_t vectors = num_tiles(p.args.m) * p.k_tiles * kTileVectors;
  const std::int64_t blocks = ceil_divide<std::int64_t>(vectors, kThreads);
  launch<round_inputs_kernel<T>>({.grid = {static_cast<int>(blocks)}, .num_threads = kThreads},
                                 stream, p, tiles);
}

template <typename T>
void launch_round_to_cores(const LinearParams& p, int row_tiles, Words4* tiles,
                           StreamHandle stream) {
  constexpr int kThreads = 256;
  const std::int64_t warps = num_tiles(p.args.m) * core_tiles(p.k_tiles) / 2;
  const std::int64_t blocks = ceil_divide<std::int64_t>(warps, kThreads / kWarpSize);
  launch<round_to_cores_kernel<T>>({.grid = {static_cast<int>(blocks)}, .num_threads = kThreads},
                                   stream, p, row_tiles, tiles);
}

}  // namespace lmtp::kernels::cuda
