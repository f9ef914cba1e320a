// Inputs into tiles, before a product of many rows.
#pragma once

#include "cuda/linear_common.cuh"

namespace lmtp::kernels::cuda {

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

}  // namespace lmtp::kernels::cuda
