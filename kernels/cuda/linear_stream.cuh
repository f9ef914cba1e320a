// The linear of few rows: every weight is read once, by the warp whose slice it is in, from global
// memory to its registers; many loads are in flight in each warp.
#pragma once

#include "cuda/linear_common.cuh"

namespace lmtp::kernels::cuda {

// Words4 of weights that a lane has in flight, and as many being multiplied.
inline constexpr int kStreamLoads = 8;

// How a block divides its warps: `groups` groups of one warp a slice.
struct StreamBlock {
  int num_slices = 1;
  int groups = 1;

  constexpr int num_warps() const { return num_slices * groups; }
};
constexpr StreamBlock stream_block(int num_slices) {
  return {num_slices, num_slices >= 8 ? 1 : 8 / num_slices};
}

// The fragments of 8 rows of x for one tile of inputs, from f32.
template <typename T>
__device__ inline void round_inputs(const LinearParams& p, int tile, std::uint32_t (&b)[2]) {
  const int row = lane_index() / 4;
  b[0] = 0;
  b[1] = 0;
  if (row < p.args.m) {
    const int column = tile * kTileSide + lane_index() % 4 * 4;
    const Floats4 x = load_four(p.args.x + row * p.args.x_stride, column, p.args.k, p.x_aligned);
    b[0] = round_pair<T>(x.values[0], x.values[1]);
    b[1] = round_pair<T>(x.values[2], x.values[3]);
  }
}

// kOutputTiles tiles of 16 outputs by kRowEights times 8 rows; 8 rows come from f32, more from
// tiles. Shared memory: stream_shared_bytes().
template <typename T, int kOutputTiles, int kRowEights>
struct StreamWarp {
  static constexpr int kBatch = kStreamLoads / kOutputTiles;  // tiles of inputs

  const LinearParams& p;
  const Words4* weights;  // this lane's of the first output tile; others are k_tiles tiles further
  int num_output_tiles;   // that exist, at most kOutputTiles
  float sums[kOutputTiles][kRowEights][4] = {};

  __device__ void load_weights(int tile, int end, Words4 (&batch)[kBatch][kOutputTiles]) const {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
#pragma unroll
      for (int o = 0; o < kOutputTiles; ++o) {
        if (tile + i < end && o < num_output_tiles) {
          const std::int64_t at = std::int64_t{o} * p.k_tiles + tile + i;
          batch[i][o] = load_once(weights + at * kTileVectors);
        }
      }
    }
  }

  __device__ void load_inputs(int tile, std::uint32_t (&b)[kRowEights][2]) const {
    if constexpr (kRowEights == 1) {
      round_inputs<T>(p, tile, b[0]);
    } else {
#pragma unroll
      for (int r = 0; r < kRowEights / 2; ++r) {
        // Tiles of rows that do not exist are not read.
        Words4 x = {};
        if (r * kTileSide < p.args.m) {
          const std::int64_t at = std::int64_t{r} * p.k_tiles + tile;
          x = load(p.x_tiles + at * kTileVectors + lane_index());
        }
        b[2 * r][0] = x.words[0];
        b[2 * r][1] = x.words[2];
        b[2 * r + 1][0] = x.words[1];
        b[2 * r + 1][1] = x.words[3];
      }
    }
  }

  __device__ void multiply(int tile, int end, const Words4 (&batch)[kBatch][kOutputTiles]) {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (tile + i < end) {
        std::uint32_t b[kRowEights][2];
        load_inputs(tile + i, b);
#pragma unroll
        for (int o = 0; o < kOutputTiles; ++o) {
          if (o < num_output_tiles) {
#pragma unroll
            for (int r = 0; r < kRowEights; ++r) {
              mma_m16n8k16<T>(sums[o][r], batch[i][o], b[r][0], b[r][1]);
            }
          }
        }
      }
    }
  }

  // The chain of the tiles [tile, end).
  __device__ void run(int tile, int end) {
    Words4 current[kBatch][kOutputTiles];
    Words4 next[kBatch][kOutputTiles];
    load_weights(tile, end, next);  // packed and synchronised before any launch
    grid_dependency_wait();
    for (; tile < end; tile += kBatch) {
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
#pragma unroll
        for (int o = 0; o < kOutputTiles; ++o) {
          current[i][o] = next[i][o];
        }
      }
      load_weights(tile + kBatch, end, next);
      multiply(tile, end, current);
    }
  }
};

template <int kRowEights>
constexpr std::size_t stream_shared_bytes(int num_warps) {
  return sizeof(float) * static_cast<std::size_t>(num_warps) * kRowEights * 4 * kWarpSize;
}

// Threads of a block at most: with several output tiles a warp, the registers of a half.
constexpr int stream_threads_max(int output_tiles) {
  return (output_tiles == 1 ? kSlicesMax : kSlicesMax / 2) * kWarpSize;
}

template <typename T, int kOutputTiles, int kRowEights>
__global__ void __launch_bounds__(stream_threads_max(kOutputTiles))
    linear_stream_kernel(LinearParams p) {
  constexpr int kRegisters = kRowEights * 4;
  const StreamBlock block = stream_block(p.slices.count);
  const int slice = warp_index() % block.num_slices;
  const int group = warp_index() / block.num_slices;
  const int first_tile = (block_index().x * block.groups + group) * kOutputTiles;
  const int left = static_cast<int>(num_tiles(p.args.n)) - first_tile;
  const int end = (slice + 1) * p.slices.tiles;
  const auto* weights = static_cast<const Words4*>(p.args.weight) +
                        std::int64_t{first_tile} * p.k_tiles * kTileVectors + lane_index();
  StreamWarp<T, kOutputTiles, kRowEights> warp{p, weights,
                                               left < kOutputTiles ? left : kOutputTiles};
  warp.run(slice * p.slices.tiles, end < p.k_tiles ? end : p.k_tiles);
  grid_dependency_launch();

  // [group][slice][register][lane]
  auto* shared = shared_memory<float>();
  float* mine = shared + warp_index() * kRegisters * kWarpSize + lane_index();
  const float* of_group = shared + group * block.num_slices * kRegisters * kWarpSize;
#pragma unroll
  for (int o = 0; o < kOutputTiles; ++o) {
    block_barrier();
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) {
      mine[i * kWarpSize] = warp.sums[o][i / 4][i % 4];
    }
    block_barrier();
    for (int i = slice; i < kRegisters; i += block.num_slices) {
      float sum = 0.0F;
      for (int s = 0; s < block.num_slices; ++s) {
        sum += of_group[(s * kRegisters + i) * kWarpSize + lane_index()];
      }
      const int row = i / 4 * 8 + lane_index() % 4 * 2 + i % 2;
      const int n = (first_tile + o) * kTileSide + i % 4 / 2 * 8 + lane_index() / 4;
      finish(p.args, row, n, sum);
    }
  }
}

}  // namespace lmtp::kernels::cuda
