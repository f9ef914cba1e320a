// The linear of many rows: 128 outputs by 128 rows a block, weights and inputs through shared
// memory in stages that are copied ahead.
#pragma once

#include "cuda/linear_common.cuh"

namespace lmtp::kernels::cuda {

// Tiles of 16, and their warps: each has 4 output tiles by 2 row tiles.
inline constexpr int kBlockTiles = 8;
inline constexpr int kWarpOutputs = 4;
inline constexpr int kWarpRows = 2;
inline constexpr int kTiledWarps = 8;
inline constexpr int kTiledThreads = kTiledWarps * kWarpSize;
inline constexpr int kStageInputs = 2;  // tiles of inputs in a stage
inline constexpr int kStages = 4;
static_assert(kSliceUnit % kStageInputs == 0);
static_assert(kBlockTiles / kWarpOutputs * (kBlockTiles / kWarpRows) == kTiledWarps);

struct TiledStage {
  Words4 weights[kBlockTiles][kStageInputs][kTileVectors];
  Words4 inputs[kBlockTiles][kStageInputs][kTileVectors];
};
inline constexpr std::size_t kTiledSharedBytes = kStages * sizeof(TiledStage);

// Starts the copies of the inputs [tile, tile + kStageInputs) of a block's tiles.
__device__ inline void copy_stage(const LinearParams& p, const Grid& block, int tile,
                                  TiledStage& stage) {
  constexpr int kVectors = kBlockTiles * kStageInputs * kTileVectors;
  const auto* weights = static_cast<const Words4*>(p.args.weight);
  const auto output_tiles = static_cast<int>(num_tiles(p.args.n));
  const auto row_tiles = static_cast<int>(num_tiles(p.args.m));
#pragma unroll
  for (int i = 0; i < kVectors; i += kTiledThreads) {
    const int at = i + thread_index();
    const int vector = at % kTileVectors;
    const int input = at / kTileVectors % kStageInputs;
    const int side = at / kTileVectors / kStageInputs;
    const bool exists = tile + input < p.k_tiles;
    const int output = block.y * kBlockTiles + side;
    const int row = block.x * kBlockTiles + side;
    const std::int64_t of_output = std::int64_t{output} * p.k_tiles + tile + input;
    const std::int64_t of_row = std::int64_t{row} * p.k_tiles + tile + input;
    const bool has_output = exists && output < output_tiles;
    const bool has_row = exists && row < row_tiles;
    copy_async(&stage.weights[side][input][vector],
               weights + (has_output ? of_output * kTileVectors + vector : 0), has_output);
    copy_async(&stage.inputs[side][input][vector],
               p.x_tiles + (has_row ? of_row * kTileVectors + vector : 0), has_row);
  }
}

template <typename T>
struct TiledWarp {
  int output;  // first tile in the block
  int row;
  float sums[kWarpOutputs][kWarpRows * 2][4] = {};    // of the slice
  float totals[kWarpOutputs][kWarpRows * 2][4] = {};  // of the slices before it

  __device__ void multiply(const TiledStage& stage, int input) {
    Words4 a[kWarpOutputs];
#pragma unroll
    for (int o = 0; o < kWarpOutputs; ++o) {
      a[o] = load(&stage.weights[output + o][input][lane_index()]);
    }
#pragma unroll
    for (int r = 0; r < kWarpRows; ++r) {
      const Words4 b = load(&stage.inputs[row + r][input][lane_index()]);
#pragma unroll
      for (int o = 0; o < kWarpOutputs; ++o) {
        mma_m16n8k16<T>(sums[o][2 * r], a[o], b.words[0], b.words[2]);
        mma_m16n8k16<T>(sums[o][2 * r + 1], a[o], b.words[1], b.words[3]);
      }
    }
  }

  __device__ void end_slice() {
#pragma unroll
    for (int o = 0; o < kWarpOutputs; ++o) {
#pragma unroll
      for (int r = 0; r < kWarpRows * 2; ++r) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          totals[o][r][i] += sums[o][r][i];
          sums[o][r][i] = 0.0F;
        }
      }
    }
  }

  __device__ void write(const LinearParams& p, const Grid& block) const {
    const int row0 = (block.x * kBlockTiles + row) * kTileSide + lane_index() % 4 * 2;
    const int n0 = (block.y * kBlockTiles + output) * kTileSide + lane_index() / 4;
#pragma unroll
    for (int o = 0; o < kWarpOutputs; ++o) {
#pragma unroll
      for (int r = 0; r < kWarpRows * 2; ++r) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          finish(p.args, row0 + r * 8 + i % 2, n0 + o * kTileSide + i / 2 * 8, totals[o][r][i]);
        }
      }
    }
  }
};

template <typename T>
__global__ void __launch_bounds__(kTiledThreads) linear_tiled_kernel(LinearParams p) {
  auto* stages = shared_memory<TiledStage>();
  const Grid block = block_index();
  TiledWarp<T> warp{warp_index() / (kBlockTiles / kWarpRows) * kWarpOutputs,
                    warp_index() % (kBlockTiles / kWarpRows) * kWarpRows};
  const bool has_work = block.y * kBlockTiles + warp.output < num_tiles(p.args.n) &&
                        block.x * kBlockTiles + warp.row < num_tiles(p.args.m);
  grid_dependency_wait();
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) {
    copy_stage(p, block, s * kStageInputs, stages[s]);
    commit_copies();
  }
  int slice_end = p.slices.tiles;
  int slot = 0;
  for (int tile = 0; tile < p.k_tiles; tile += kStageInputs) {
    wait_for_copies<kStages - 2>();
    block_barrier();  // this stage is there for all, and all are done with the one before
    const int ahead = slot == 0 ? kStages - 1 : slot - 1;
    copy_stage(p, block, tile + (kStages - 1) * kStageInputs, stages[ahead]);
    commit_copies();
#pragma unroll
    for (int input = 0; input < kStageInputs; ++input) {
      if (has_work && tile + input < p.k_tiles) {
        warp.multiply(stages[slot], input);
      }
    }
    if (tile + kStageInputs >= slice_end || tile + kStageInputs >= p.k_tiles) {
      warp.end_slice();
      slice_end += p.slices.tiles;
    }
    slot = slot + 1 == kStages ? 0 : slot + 1;
  }
  wait_for_copies<0>();
  grid_dependency_launch();
  warp.write(p, block);
}

}  // namespace lmtp::kernels::cuda
