// The linear of many rows: a block takes some outputs of some rows, weights and inputs through
// shared memory in stages that are copied ahead. tiled_kernel_for() in linear.cu chooses the shape
// of blocks, which decides which thread computes an element, not in which order.
#pragma once

#include "cuda/linear_operands.cuh"

namespace lmtp::kernels::cuda {

// Tiles of inputs in a stage, which lies in one slice.
inline constexpr int kStageInputs = kSliceUnit;
// Shared memory of a block on every device from 8.0 on.
inline constexpr std::size_t kTiledSharedBytesMax = std::size_t{99} << 10;

// The part of a block, and of each of its warps, in tiles of 16. While one stage is multiplied,
// copies of all others are in flight: at least 48 KiB a multiprocessor.
template <int kOutputTiles, int kRowTiles, int kOutputTilesOfWarp, int kRowTilesOfWarp,
          int kNumStages>
struct TiledShape {
  static constexpr int kStages = kNumStages;
  static constexpr int kOutputs = kOutputTiles;
  static constexpr int kRows = kRowTiles;
  static constexpr int kWarpOutputs = kOutputTilesOfWarp;
  static constexpr int kWarpRows = kRowTilesOfWarp;
  static constexpr int kWarpsAlongRows = kRows / kWarpRows;
  static constexpr int kThreads = kOutputs / kWarpOutputs * kWarpsAlongRows * kWarpSize;
  static_assert(kOutputs % kWarpOutputs == 0 && kRows % kWarpRows == 0);

  struct Stage {
    Words4 weights[kOutputs][kStageInputs][kTileVectors];
    Words4 inputs[kRows][kStageInputs][kTileVectors];
  };
  static constexpr std::size_t kSharedBytes = kStages * sizeof(Stage);
  static_assert(kSharedBytes <= kTiledSharedBytesMax);
};

// Outputs x rows. A warp's tiles are as large as registers for its sums allow, since it reads
// kWarpOutputs + kWarpRows tiles of shared memory for kWarpOutputs * kWarpRows products; with four
// warps at least, one for each tensor core of a multiprocessor.
using Tiled128x128 = TiledShape<8, 8, 4, 2, 3>;
using Tiled128x64 = TiledShape<8, 4, 4, 2, 4>;
using Tiled64x64 = TiledShape<4, 4, 2, 2, 4>;

template <typename Shape>
Grid tiled_grid(std::int64_t m, std::int64_t n) {
  return {static_cast<int>(ceil_divide<std::int64_t>(num_tiles(m), Shape::kRows)),
          static_cast<int>(ceil_divide<std::int64_t>(num_tiles(n), Shape::kOutputs))};
}

// A matrix in tiles, and the first of a block's rows of them.
struct BlockTiles {
  const Words4* matrix;  // [num_rows][k_tiles] tiles
  int num_rows;
  int k_tiles;
  int first_row;
};

// Starts the copies of a block's tiles of the inputs [k_tile, k_tile + kStageInputs); those that do
// not exist become zero.
template <int kThreads, int kTiles>
__device__ void copy_tiles(const BlockTiles& from, int k_tile,
                           Words4 (&to)[kTiles][kStageInputs][kTileVectors]) {
  constexpr int kVectors = kTiles * kStageInputs * kTileVectors;
  static_assert(kVectors % kThreads == 0);
#pragma unroll
  for (int i = 0; i < kVectors; i += kThreads) {
    const int at = i + thread_index();
    const int vector = at % kTileVectors;
    const int input = at / kTileVectors % kStageInputs;
    const int side = at / kTileVectors / kStageInputs;
    const int row = from.first_row + side;
    const bool exists = row < from.num_rows && k_tile + input < from.k_tiles;
    const std::int64_t tile = std::int64_t{row} * from.k_tiles + k_tile + input;
    copy_async(&to[side][input][vector], from.matrix + (exists ? tile * kTileVectors + vector : 0),
               exists);
  }
}

template <typename T, typename Shape>
struct TiledWarp {
  static constexpr int kOutputs = Shape::kWarpOutputs;
  static constexpr int kRows = Shape::kWarpRows;

  int output;  // first tile in the block
  int row;
  SumOf<T> sums[kOutputs][kRows * 2][4] = {};  // of the slice; exact ones of all
  float totals[kOutputs][kRows * 2][4] = {};   // of the slices before it

  __device__ void multiply_input(const typename Shape::Stage& stage, int input) {
    Words4 a[kOutputs];
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) a[o] = load(&stage.weights[output + o][input][lane_index()]);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const Words4 b = load(&stage.inputs[row + r][input][lane_index()]);
#pragma unroll
      for (int o = 0; o < kOutputs; ++o) {
        multiply_tile<T>(sums[o][2 * r], a[o], b.words[0], b.words[2]);
        multiply_tile<T>(sums[o][2 * r + 1], a[o], b.words[1], b.words[3]);
      }
    }
  }

  // A whole stage without branches, so that loads of an input go before products of another.
  __device__ void multiply(const typename Shape::Stage& stage, int num_inputs) {
    if (num_inputs >= kStageInputs) {
#pragma unroll
      for (int input = 0; input < kStageInputs; ++input) multiply_input(stage, input);
    } else {
#pragma unroll 1
      for (int input = 0; input < num_inputs; ++input) multiply_input(stage, input);
    }
  }

  __device__ void end_slice() {
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) {
#pragma unroll
      for (int r = 0; r < kRows * 2; ++r) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          totals[o][r][i] += sums[o][r][i];
          sums[o][r][i] = 0;
        }
      }
    }
  }

  // Writes a warp's part of a block whose first tiles are these.
  __device__ void write(const LinearParams& p, int output_tile, int row_tile) {
    const int first_row = (row_tile + row) * kTileSide;
    const int first_output = (output_tile + output) * kTileSide;
    if constexpr (kIsExact<T>) {
      scale_sums(p, first_row + lane_index() % 4 * 2, first_output + lane_index() / 4);
    }
    write_sums(p.args, totals, first_row, first_output);
  }

  // Of whole numbers, in fragments whose first row and output for this lane are these.
  __device__ void scale_sums(const LinearParams& p, int row0, int n0) {
    float row_scales[kRows * 2][2];
#pragma unroll
    for (int r = 0; r < kRows * 2; ++r) {
#pragma unroll
      for (int i = 0; i < 2; ++i) row_scales[r][i] = row_scale_of<T>(p, row0 + r * 8 + i);
    }
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) {
      const float scales[2] = {output_scale_of<T>(p, n0 + o * kTileSide),
                               output_scale_of<T>(p, n0 + o * kTileSide + 8)};
#pragma unroll
      for (int r = 0; r < kRows * 2; ++r) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          totals[o][r][i] = value_of<T>(sums[o][r][i], row_scales[r][i % 2], scales[i / 2]);
        }
      }
    }
  }
};

template <typename T, typename Shape>
__global__ void __launch_bounds__(Shape::kThreads) linear_tiled_kernel(LinearParams p) {
  constexpr int kStages = Shape::kStages;
  auto* stages = shared_memory<typename Shape::Stage>();
  const Grid block = block_index();
  const BlockTiles weights = {static_cast<const Words4*>(p.args.weight),
                              static_cast<int>(num_tiles(p.args.n)), p.k_tiles,
                              block.y * Shape::kOutputs};
  const BlockTiles inputs = {p.x_tiles, static_cast<int>(num_tiles(p.args.m)), p.k_tiles,
                             block.x * Shape::kRows};
  TiledWarp<T, Shape> warp{warp_index() / Shape::kWarpsAlongRows * Shape::kWarpOutputs,
                           warp_index() % Shape::kWarpsAlongRows * Shape::kWarpRows};
  const bool has_work = weights.first_row + warp.output < weights.num_rows &&
                        inputs.first_row + warp.row < inputs.num_rows;
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) {
    // Packed and synchronised before any launch, or written by one that has ended.
    copy_tiles<Shape::kThreads>(weights, s * kStageInputs, stages[s].weights);
  }
  grid_dependency_wait();
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) {
    copy_tiles<Shape::kThreads>(inputs, s * kStageInputs, stages[s].inputs);
    commit_copies();
  }
  int slice_end = p.slices.tiles;
  int stage = 0;
  for (int tile = 0; tile < p.k_tiles; tile += kStageInputs) {
    wait_for_copies<kStages - 2>();
    block_barrier();  // all see this stage, and are done with the one before
    auto& ahead = stages[stage == 0 ? kStages - 1 : stage - 1];
    copy_tiles<Shape::kThreads>(weights, tile + (kStages - 1) * kStageInputs, ahead.weights);
    copy_tiles<Shape::kThreads>(inputs, tile + (kStages - 1) * kStageInputs, ahead.inputs);
    commit_copies();
    if (has_work) warp.multiply(stages[stage], p.k_tiles - tile);
    if (tile + kStageInputs >= slice_end || tile + kStageInputs >= p.k_tiles) {
      if constexpr (!kIsExact<T>) warp.end_slice();
      slice_end += p.slices.tiles;
    }
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }
  wait_for_copies<0>();
  warp.write(p, weights.first_row, inputs.first_row);
}

}  // namespace lmtp::kernels::cuda
