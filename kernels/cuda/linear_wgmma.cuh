// The kernels of linear_wgmma.h. Two warp groups of a block take 128 outputs of kRows rows of x.
// One warp more has weights and inputs copied to shared memory, stage by stage, as long as there
// is place. A warp has 16 outputs, and its operand A is the tile of weights as it lies in memory;
// all warps share operand B. While the tensor cores work on one stage, the weights of the next one
// go to registers.
#pragma once

#include <warp_groups.cuh>

#include "cuda/linear_common.cuh"
#include "cuda/linear_wgmma.h"
#include "cuda/round_inputs.cuh"

namespace lmtp::kernels::cuda {

inline constexpr int kWgmmaWarps = kWgmmaOutputs / kTileSide;  // that multiply
inline constexpr int kWgmmaThreads = kWgmmaWarps * kWarpSize;  // likewise
inline constexpr int kWarpGroup = 4 * kWarpSize;
inline constexpr int kWgmmaStageInputs = kSliceUnit;        // tiles, all of one slice
inline constexpr int kWgmmaSumsStride = kWgmmaOutputs + 4;  // without bank conflicts
inline constexpr int kTileBytes = kTileVectors * static_cast<int>(sizeof(Words4));

template <int kRows, bool kCluster>
struct WgmmaShape {
  static constexpr int kRowTiles = kRows / kTileSide;
  static constexpr int kEights = kRows / 8;
  // So many blocks share a multiprocessor, whose shared memory has their stages: one alone where it
  // needs the registers, for sums and totals.
  static constexpr int kBlocks = kRows <= (kCluster ? 64 : 32) ? 2 : 1;
  static constexpr int kStages = kBlocks == 2 ? (kRows <= 16   ? 6
                                                 : kRows <= 32 ? 5
                                                               : 4)
                                              : (kRows <= 64 ? 8 : 7);
  // There the warp that copies is one of a warp group, which gives its registers to the other two.
  static constexpr int kThreads =
      kWgmmaThreads + (kBlocks == 1 && !kCluster ? kWarpGroup : kWarpSize);

  struct Stage {
    Words4 weights[kWgmmaWarps][kWgmmaStageInputs][kTileVectors];
    Words4 inputs[kWgmmaStageInputs][kRowTiles][kTileVectors];
  };
  struct Shared {
    Stage stages[kStages];
    CopyBarrier filled[kStages];
    CopyBarrier emptied[kStages];

    // Sums by row and output, in the place of stages that are done with.
    __device__ float* sums() { return reinterpret_cast<float*>(stages); }
  };
  static_assert(sizeof(Stage) * kStages >= sizeof(float) * kRows * kWgmmaSumsStride);
  static_assert((sizeof(Shared) + 1024) * kBlocks <= std::size_t{228} << 10);
};

// What a block computes: blocks of kRows rows and of kWgmmaOutputs outputs, counted.
struct WgmmaBlock {
  int rows;
  int outputs;
};

// Blocks that run together share weights and inputs in L2. They also write to few pages of memory:
// beyond 128 MiB of y at a time an H200 took 1.7 times as long (2,048 rows of 28,672 outputs).
__device__ inline WgmmaBlock wgmma_block(const LinearParams& p) {
  const Grid at = block_index();
  const Grid grid = grid_size();
  const int linear = at.y * grid.x + at.x;
  const int group = linear / (p.row_group * grid.y);
  const int first = group * p.row_group;
  const int rows = grid.x - first < p.row_group ? grid.x - first : p.row_group;
  const int in_group = linear - first * grid.y;
  return {first + in_group % rows, in_group / rows};
}

// Begins the copies of a stage's weights, of the tiles [tile, end) of inputs, a lane a row of
// tiles. Outputs that do not exist keep what was there: their sums go nowhere.
template <typename Shape>
__device__ void copy_wgmma_weights(const LinearParams& p, const WgmmaBlock& block, int tile,
                                   int end, typename Shape::Shared& shared, int stage) {
  const int first = block.outputs * kWgmmaWarps;
  const int left = static_cast<int>(num_tiles(p.args.n)) - first;
  const int sides = left < kWgmmaWarps ? left : kWgmmaWarps;
  const int num_bytes =
      (end - tile < kWgmmaStageInputs ? end - tile : kWgmmaStageInputs) * kTileBytes;
  const int side = lane_index();
  if (side == 0) {
    shared.filled[stage].arrive_expecting(sides * num_bytes +
                                          static_cast<int>(sizeof(Shape::Stage::inputs)));
  }
  if (side < sides) {
    const std::int64_t at = std::int64_t{first + side} * p.k_tiles + tile;
    bulk_copy(&shared.stages[stage].weights[side][0][0],
              static_cast<const Words4*>(p.args.weight) + at * kTileVectors, num_bytes,
              shared.filled[stage]);
  }
}

template <typename Shape>
__device__ void copy_wgmma_inputs(const LinearParams& p, const WgmmaBlock& block, int tile,
                                  typename Shape::Shared& shared, int stage) {
  if (lane_index() != kWgmmaWarps) return;  // one that has no weights to copy
  const std::int64_t at = block.rows * core_tiles(p.k_tiles) + tile;
  bulk_copy(&shared.stages[stage].inputs[0][0][0], p.x_tiles + at * Shape::kRowTiles * kTileVectors,
            static_cast<int>(sizeof(Shape::Stage::inputs)), shared.filled[stage]);
}

// Has the stages of the tiles [begin, end) copied; of one warp.
template <typename Shape>
__device__ void fill_stages(const LinearParams& p, const WgmmaBlock& block, int begin, int end,
                            typename Shape::Shared& shared) {
  const auto tile_of = [begin](int i) { return begin + i * kWgmmaStageInputs; };
  const int count = ceil_divide(end - begin, kWgmmaStageInputs);
  const int ahead = count < Shape::kStages ? count : Shape::kStages;
  // Packed and synchronised before any launch.
  for (int i = 0; i < ahead; ++i) copy_wgmma_weights<Shape>(p, block, tile_of(i), end, shared, i);
  grid_dependency_wait();
  for (int i = 0; i < ahead; ++i) copy_wgmma_inputs<Shape>(p, block, tile_of(i), shared, i);
  int stage = 0;
  int parity = 0;
  for (int i = ahead; i < count; ++i) {
    shared.emptied[stage].wait(parity);
    warp_barrier();  // no lane falls behind by a phase
    copy_wgmma_weights<Shape>(p, block, tile_of(i), end, shared, stage);
    copy_wgmma_inputs<Shape>(p, block, tile_of(i), shared, stage);
    stage = stage + 1 == Shape::kStages ? 0 : stage + 1;
    parity ^= stage == 0 ? 1 : 0;
  }
}

// A warp's sums over one slice, and its way through the stages.
template <typename T, typename Shape>
struct WgmmaWarp {
  typename Shape::Shared& shared;
  float sums[Shape::kEights][4] = {};
  int stage = 0;
  int parity = 0;
  int before = -1;  // the stage whose products may be under way

  // Begins the products of the next stage, by weights in `a`, and waits for those of the one
  // before.
  __device__ void multiply(int num_tiles_left, Words4 (&a)[kWgmmaStageInputs]) {
    shared.filled[stage].wait(parity);
    const auto& here = shared.stages[stage];
#pragma unroll
    for (int i = 0; i < kWgmmaStageInputs; ++i) {
      a[i] = load(&here.weights[warp_index()][i][lane_index()]);
      // What was not copied may be anything, and inputs there are zero.
      if (i >= num_tiles_left) a[i] = Words4{};
    }
    wgmma_begin(sums, a);
#pragma unroll
    for (int i = 0; i < kWgmmaStageInputs; ++i) {
      wgmma<T, Shape::kEights * 8>(sums, a[i], &here.inputs[i][0][0]);
    }
    wgmma_commit();
    wgmma_wait<1>(sums);
    if (before >= 0 && lane_index() == 0) shared.emptied[before].arrive();
    before = stage;
    stage = stage + 1 == Shape::kStages ? 0 : stage + 1;
    parity ^= stage == 0 ? 1 : 0;
  }

  // Multiplies the tiles [begin, end), which are a slice or its rest.
  __device__ void run(int begin, int end) {
    Words4 even[kWgmmaStageInputs];
    Words4 odd[kWgmmaStageInputs];
    int left = end - begin;
    if (ceil_divide(left, kWgmmaStageInputs) % 2 == 1) {
      multiply(left, odd);
      wgmma_wait<0>(sums);
      left -= kWgmmaStageInputs;
    }
    // Without a branch between the first product and the wait for all.
    for (; left > 0; left -= 2 * kWgmmaStageInputs) {
      multiply(left, even);
      multiply(left - kWgmmaStageInputs, odd);
    }
    wgmma_wait<0>(sums);
  }
};

template <typename Shape>
__device__ typename Shape::Shared& begin_wgmma() {
  auto& shared = *shared_memory<typename Shape::Shared>();
  if (thread_index() == 0) {
    for (int i = 0; i < Shape::kStages; ++i) {
      shared.filled[i].init(1);
      shared.emptied[i].init(kWgmmaWarps);
    }
  }
  block_barrier();
  return shared;
}

// Puts a warp's fragments into rows.
template <int kEights>
__device__ void store_sums(const float (&sums)[kEights][4], float* to) {
  to += lane_index() % 4 * 2 * kWgmmaSumsStride + warp_index() * kTileSide + lane_index() / 4;
#pragma unroll
  for (int j = 0; j < kEights; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) to[(j * 8 + i % 2) * kWgmmaSumsStride + i / 2 * 8] = sums[j][i];
  }
}

// Writes a row of the block's outputs, those of a lane 32 apart: whole lines of memory.
__device__ inline void finish_row(const LinearLaunch& args, std::int64_t row, int output_block,
                                  const float (&sums)[kWgmmaOutputs / kWarpSize]) {
  const std::int64_t first = std::int64_t{output_block} * kWgmmaOutputs + lane_index();
  float biases[kWgmmaOutputs / kWarpSize];
  float residuals[kWgmmaOutputs / kWarpSize];
#pragma unroll
  for (int q = 0; q < kWgmmaOutputs / kWarpSize; ++q) {
    biases[q] = bias_of(args, first + q * kWarpSize);
    residuals[q] = residual_of(args, row, first + q * kWarpSize);
  }
#pragma unroll
  for (int q = 0; q < kWgmmaOutputs / kWarpSize; ++q) {
    finish(args, row, first + q * kWarpSize, sums[q], biases[q], residuals[q]);
  }
}

// The slices one after another.
template <typename T, typename Shape>
__device__ void multiply_all_slices(const LinearParams& p, const WgmmaBlock& block,
                                    typename Shape::Shared& shared) {
  grid_dependency_wait();
  WgmmaWarp<T, Shape> warp{shared};
  float totals[Shape::kEights][4] = {};
  for (int begin = 0; begin < p.k_tiles; begin += p.slices.tiles) {
    warp.run(begin, slice_end(p, begin));
#pragma unroll
    for (int j = 0; j < Shape::kEights; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        totals[j][i] += warp.sums[j][i];
        warp.sums[j][i] = 0.0F;
      }
    }
  }
  group_barrier(kWgmmaThreads);
  store_sums(totals, shared.sums());
  group_barrier(kWgmmaThreads);
  constexpr int kRows = Shape::kEights * 8;
  for (int r = warp_index(); r < kRows; r += kWgmmaWarps) {
    const std::int64_t row = std::int64_t{block.rows} * kRows + r;
    if (row >= p.args.m) break;
    float sums[kWgmmaOutputs / kWarpSize];
#pragma unroll
    for (int q = 0; q < kWgmmaOutputs / kWarpSize; ++q) {
      sums[q] = shared.sums()[r * kWgmmaSumsStride + q * kWarpSize + lane_index()];
    }
    finish_row(p.args, row, block.outputs, sums);
  }
}

template <typename T, int kRows>
__global__ void __launch_bounds__(WgmmaShape<kRows, false>::kThreads,
                                  WgmmaShape<kRows, false>::kBlocks)
    linear_wgmma_kernel(LinearParams p) {
  using Shape = WgmmaShape<kRows, false>;
  auto& shared = begin_wgmma<Shape>();
  const WgmmaBlock block = wgmma_block(p);
  if (warp_index() >= kWgmmaWarps) {
    if constexpr (Shape::kBlocks == 1) keep_registers<40>();
    if (warp_index() == kWgmmaWarps) {
      fill_stages<Shape>(p, block, 0, p.k_tiles, shared);
    } else {
      grid_dependency_wait();
    }
  } else {
    if constexpr (Shape::kBlocks == 1) take_registers<232>();
    multiply_all_slices<T, Shape>(p, block, shared);
  }
}

// Adds up what the blocks of the cluster have at `sums`, in the order of slices; each block takes
// its share of the rows.
template <int kRows>
__device__ void add_slices(const LinearParams& p, const WgmmaBlock& block, const float* sums) {
  constexpr int kEach = kWgmmaOutputs / kWarpSize;
  const int count = p.slices.count;
  for (int r = block_index().z + warp_index() * count; r < kRows; r += kWgmmaWarps * count) {
    const std::int64_t row = std::int64_t{block.rows} * kRows + r;
    if (row >= p.args.m) break;
    float row_sums[kEach] = {};
    const float* at = sums + r * kWgmmaSumsStride + lane_index();
    constexpr int kTogether = 8;  // slices whose loads are under way
    for (int first = 0; first < count; first += kTogether) {
      float parts[kTogether][kEach];
#pragma unroll
      for (int s = 0; s < kTogether; ++s) {
#pragma unroll
        for (int q = 0; q < kEach; ++q) {
          parts[s][q] = first + s < count ? load_of_block(at + q * kWarpSize, first + s) : 0.0F;
        }
      }
#pragma unroll
      for (int s = 0; s < kTogether; ++s) {
#pragma unroll
        for (int q = 0; q < kEach; ++q) {
          row_sums[q] = first + s < count ? row_sums[q] + parts[s][q] : row_sums[q];
        }
      }
    }
    finish_row(p.args, row, block.outputs, row_sums);
  }
}

// A block a slice; those of a cluster have the same outputs and rows.
template <typename T, int kRows>
__global__ void __launch_bounds__(WgmmaShape<kRows, true>::kThreads,
                                  WgmmaShape<kRows, true>::kBlocks)
    linear_wgmma_cluster_kernel(LinearParams p) {
  using Shape = WgmmaShape<kRows, true>;
  auto& shared = begin_wgmma<Shape>();
  const WgmmaBlock block = wgmma_block(p);
  const int begin = block_index().z * p.slices.tiles;
  const int end = slice_end(p, begin);
  const bool multiplies = warp_index() < kWgmmaWarps;
  if (multiplies) {
    grid_dependency_wait();
    WgmmaWarp<T, Shape> warp{shared};
    warp.run(begin, end);
    group_barrier(kWgmmaThreads);
    store_sums(warp.sums, shared.sums());
  } else {
    fill_stages<Shape>(p, block, begin, end, shared);
  }
  cluster_barrier();
  if (multiplies) add_slices<kRows>(p, block, shared.sums());
  cluster_barrier();  // until then others read this block's shared memory
}

}  // namespace lmtp::kernels::cuda
