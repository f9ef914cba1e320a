// The kernels of linear_wgmma.h. Two warp groups of a block take 128 outputs of kRows rows of x.
// A few warps more have weights and inputs copied to shared memory, stage by stage, as long as
// there is place. A warp has 16 outputs, and its operand A is the tile of weights as it lies in
// memory; all warps share operand B. While the tensor cores work on one stage, the weights of the
// next one go to registers.
#pragma once

#include <warp_groups.cuh>

#include "cuda/linear_common.cuh"
#include "cuda/linear_wgmma.h"
#include "cuda/round_inputs.cuh"

namespace lmtp::kernels::cuda {

inline constexpr int kWgmmaWarps = kWgmmaOutputs / kTileSide;  // that multiply
inline constexpr int kWgmmaThreads = kWgmmaWarps * kWarpSize;  // likewise
inline constexpr int kWgmmaStageInputs = kSliceUnit;           // tiles, all of one slice
inline constexpr int kWgmmaSumsStride = kWgmmaOutputs + 4;     // without bank conflicts
inline constexpr int kTileBytes = kTileVectors * static_cast<int>(sizeof(Words4));
inline constexpr int kWgmmaStagesMax = 9;
inline constexpr std::size_t kSharedBytes90 = std::size_t{227} << 10;  // of a block, of 228 KiB

struct WgmmaParams {
  LinearParams linear;
  int row_blocks;     // blocks of kRows rows
  int output_blocks;  // of kWgmmaOutputs outputs
  int row_group;      // blocks of rows that wgmma_block() takes together
  int num_stages;
  int num_slices;  // in a cluster: that a block takes, one or two

  __device__ int num_works() const { return row_blocks * output_blocks; }
};

template <int kRows>
struct WgmmaShape {
  static constexpr int kRowTiles = kRows / kTileSide;
  static constexpr int kEights = kRows / 8;
  static constexpr std::size_t kSumsBytes = sizeof(float) * kRows * kWgmmaSumsStride;

  struct Stage {
    Words4 weights[kWgmmaWarps][kWgmmaStageInputs][kTileVectors];
    Words4 inputs[kWgmmaStageInputs][kRowTiles][kTileVectors];
  };
  // Then the stages; then sums of all slices of a block but the last, which come in their place.
  // Whole lines of memory are copied to whole lines of shared memory: across the bounds of these a
  // copy asks L2 twice, whose tags then were what an H200 waited for.
  struct alignas(128) Shared {
    CopyBarrier filled[kWgmmaStagesMax];
    CopyBarrier emptied[kWgmmaStagesMax];

    __device__ Stage* stages() { return reinterpret_cast<Stage*>(this + 1); }
    // Sums of a slice of the block's, by row and output.
    __device__ float* sums(const WgmmaParams& p, int slice) {
      auto* behind = reinterpret_cast<float*>(stages() + p.num_stages);
      return slice == p.num_slices - 1 ? reinterpret_cast<float*>(stages())
                                       : behind + slice * kRows * kWgmmaSumsStride;
    }
  };

  // Blocks that a multiprocessor holds: of one, by the registers for sums and totals.
  static constexpr int kBlocks = kRows <= 32 ? 2 : 1;
  // There the warps that copy are a warp group, which gives its registers to the other two.
  static constexpr int kCopyWarps = kBlocks == 1 ? 4 : 2;
  static constexpr int kThreads = kWgmmaThreads + kCopyWarps * kWarpSize;
  static constexpr int kClusterBlocks = kRows <= 64 ? 2 : 1;  // of clusters for slices
  static constexpr int kClusterCopyWarps = 2;
  static constexpr int kClusterThreads = kWgmmaThreads + kClusterCopyWarps * kWarpSize;

  // As many as fit beside the sums of so many slices, in 1 / `blocks` of a multiprocessor.
  static constexpr int stages_for(int blocks, int early_slices) {
    const std::size_t all = blocks == 1 ? kSharedBytes90 : (std::size_t{228} << 10) / blocks - 1024;
    const std::size_t taken = sizeof(Shared) + static_cast<std::size_t>(early_slices) * kSumsBytes;
    const auto stages = static_cast<int>((all - taken) / sizeof(Stage));
    return stages < kWgmmaStagesMax ? stages : kWgmmaStagesMax;
  }
  static constexpr std::size_t shared_bytes(int num_stages, int early_slices) {
    return sizeof(Shared) + static_cast<std::size_t>(num_stages) * sizeof(Stage) +
           static_cast<std::size_t>(early_slices) * kSumsBytes;
  }
};

// What a block computes: blocks of kRows rows and of kWgmmaOutputs outputs, counted.
struct WgmmaBlock {
  int rows;
  int outputs;
};

// Blocks that run together share weights and inputs in L2. They also write to few pages of memory:
// beyond 128 MiB of y at a time an H200 took 1.7 times as long (2,048 rows of 28,672 outputs).
__device__ inline WgmmaBlock wgmma_block(const WgmmaParams& p, int work) {
  const int group = work / (p.row_group * p.output_blocks);
  const int first = group * p.row_group;
  const int rows = p.row_blocks - first < p.row_group ? p.row_blocks - first : p.row_group;
  const int in_group = work - first * p.output_blocks;
  return {first + in_group % rows, in_group / rows};
}

// The stages that a block goes through: of the tiles [begin, end) of inputs, for one block of
// outputs and rows after another.
struct WgmmaWay {
  const WgmmaParams& p;
  int begin;
  int end;
  int work;
  int step;  // to the next work
  int tile = begin;
  WgmmaBlock block = wgmma_block(p, work);

  __device__ bool goes_on() const { return work < p.num_works(); }
  __device__ void advance(int stages) {
    for (int i = 0; i < stages; ++i) {
      tile += kWgmmaStageInputs;
      if (tile < end) continue;
      tile = begin;
      work += step;
      if (goes_on()) block = wgmma_block(p, work);
    }
  }
};

// Begins the copies of a stage's weights; of one lane. Outputs that do not exist keep what was
// there: their sums go nowhere.
template <typename Shape>
__device__ void copy_wgmma_weights(const WgmmaWay& way, typename Shape::Shared& shared, int stage) {
  const LinearParams& p = way.p.linear;
  const int first = way.block.outputs * kWgmmaWarps;
  const int sides = static_cast<int>(num_tiles(p.args.n)) - first;
  const int tiles = way.end - way.tile;
  const int num_bytes = (tiles < kWgmmaStageInputs ? tiles : kWgmmaStageInputs) * kTileBytes;
  const int there = sides < kWgmmaWarps ? sides : kWgmmaWarps;
  CopyBarrier& filled = shared.filled[stage];
  filled.arrive_expecting(there * num_bytes + static_cast<int>(sizeof(Shape::Stage::inputs)));
  const auto* from = static_cast<const Words4*>(p.args.weight) +
                     (std::int64_t{first} * p.k_tiles + way.tile) * kTileVectors;
  auto& to = shared.stages()[stage].weights;
#pragma unroll
  for (int side = 0; side < kWgmmaWarps; ++side) {
    if (side < sides) bulk_copy(&to[side][0][0], from, num_bytes, filled);
    from += std::int64_t{p.k_tiles} * kTileVectors;
  }
}

template <typename Shape>
__device__ void copy_wgmma_inputs(const WgmmaWay& way, typename Shape::Shared& shared, int stage) {
  const LinearParams& p = way.p.linear;
  const std::int64_t at = way.block.rows * core_tiles(p.k_tiles) + way.tile;
  bulk_copy(&shared.stages()[stage].inputs[0][0][0],
            p.x_tiles + at * Shape::kRowTiles * kTileVectors,
            static_cast<int>(sizeof(Shape::Stage::inputs)), shared.filled[stage]);
}

// Has the stages of a way copied, of which each of kWarps warps takes its part in turn: one alone
// would issue copies for longer than they take. REQUIRES: num_stages >= kWarps.
template <typename Shape, int kWarps>
__device__ void fill_stages(const WgmmaWay& all, typename Shape::Shared& shared) {
  const int num_stages = all.p.num_stages;
  const int which = warp_index() - kWgmmaWarps;
  const bool copies = elect_lane();
  // Packed and synchronised before any launch.
  WgmmaWay way = all;
  way.advance(which);
  for (int i = which; i < num_stages && way.goes_on(); i += kWarps, way.advance(kWarps)) {
    if (copies) copy_wgmma_weights<Shape>(way, shared, i);
  }
  grid_dependency_wait();
  warp_barrier();  // behind the elected lane's branch
  WgmmaWay behind = all;
  behind.advance(which);
  int stage = which;
  for (; stage < num_stages && behind.goes_on(); stage += kWarps, behind.advance(kWarps)) {
    if (copies) copy_wgmma_inputs<Shape>(behind, shared, stage);
  }
  int parity = 0;
  for (stage -= num_stages; way.goes_on(); way.advance(kWarps)) {
    if (copies) {
      shared.emptied[stage].wait(parity);
      copy_wgmma_weights<Shape>(way, shared, stage);
      copy_wgmma_inputs<Shape>(way, shared, stage);
    }
    stage += kWarps;
    if (stage >= num_stages) {
      stage -= num_stages;
      parity ^= 1;
    }
  }
  warp_barrier();
}

// A warp's sums over one slice, and its way through the stages.
template <typename T, typename Shape>
struct WgmmaWarp {
  const WgmmaParams& p;
  typename Shape::Shared& shared;
  float sums[Shape::kEights][4] = {};
  int stage = 0;
  int parity = 0;
  int before = -1;  // the stage whose products may be under way

  __device__ void release() {
    if (before >= 0 && lane_index() == 0) shared.emptied[before].arrive();
    before = -1;
  }

  // Begins the products of the next stage, by weights in `a`, and waits for those of the one
  // before.
  __device__ void multiply(int num_tiles_left, Words4 (&a)[kWgmmaStageInputs]) {
    shared.filled[stage].wait(parity);
    const auto& here = shared.stages()[stage];
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
    release();
    before = stage;
    stage = stage + 1 == p.num_stages ? 0 : stage + 1;
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
    release();
  }

  __device__ void clear() {
#pragma unroll
    for (int j = 0; j < Shape::kEights; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[j][i] = 0.0F;
    }
  }
};

template <typename Shape>
__device__ typename Shape::Shared& begin_wgmma(const WgmmaParams& p) {
  auto& shared = *shared_memory<typename Shape::Shared>();
  if (thread_index() == 0) {
    for (int i = 0; i < p.num_stages; ++i) {
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

// The slices one after another. Meanwhile, and while sums are written, the stages of what comes
// next are copied.
template <typename T, typename Shape>
__device__ void multiply_all_slices(WgmmaWay way, typename Shape::Shared& shared) {
  const LinearParams& p = way.p.linear;
  grid_dependency_wait();
  WgmmaWarp<T, Shape> warp{way.p, shared};
  for (; way.work < way.p.num_works(); way.work += way.step) {
    float totals[Shape::kEights][4] = {};
    for (int begin = 0; begin < p.k_tiles; begin += p.slices.tiles) {
      warp.run(begin, slice_end(p, begin));
#pragma unroll
      for (int j = 0; j < Shape::kEights; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) totals[j][i] += warp.sums[j][i];
      }
      warp.clear();
    }
    const WgmmaBlock block = wgmma_block(way.p, way.work);
    const std::int64_t output =
        std::int64_t{block.outputs} * kWgmmaOutputs + warp_index() * kTileSide;
    constexpr int kTogether = Shape::kEights < 8 ? Shape::kEights : 8;  // as registers allow
#pragma unroll
    for (int first = 0; first < Shape::kEights; first += kTogether) {
      auto& part = reinterpret_cast<float(&)[1][kTogether][4]>(totals[first]);
      write_sums(p.args, part, (std::int64_t{block.rows} * Shape::kEights + first) * 8, output);
    }
  }
}

// A block takes one block of outputs and rows after another.
template <typename T, int kRows>
__global__ void __launch_bounds__(WgmmaShape<kRows>::kThreads, WgmmaShape<kRows>::kBlocks)
    linear_wgmma_kernel(WgmmaParams p) {
  using Shape = WgmmaShape<kRows>;
  auto& shared = begin_wgmma<Shape>(p);
  const WgmmaWay way{p, 0, p.linear.k_tiles, block_index().x, grid_size().x};
  if (warp_index() >= kWgmmaWarps) {
    if constexpr (Shape::kBlocks == 1) keep_registers<40>();
    fill_stages<Shape, Shape::kCopyWarps>(way, shared);
  } else {
    if constexpr (Shape::kBlocks == 1) take_registers<232>();
    multiply_all_slices<T, Shape>(way, shared);
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

// Adds up what the blocks of the cluster have, in the order of slices; each block takes its share
// of the rows.
template <int kRows>
__device__ void add_slices(const WgmmaParams& p, const WgmmaBlock& block,
                           typename WgmmaShape<kRows>::Shared& shared) {
  constexpr int kEach = kWgmmaOutputs / kWarpSize;
  const int count = p.linear.slices.count;
  const int num_blocks = grid_size().z;
  const int shift = p.num_slices - 1;  // of one or two
  for (int r = block_index().z + warp_index() * num_blocks; r < kRows;
       r += kWgmmaWarps * num_blocks) {
    const std::int64_t row = std::int64_t{block.rows} * kRows + r;
    if (row >= p.linear.args.m) break;
    float row_sums[kEach] = {};
    constexpr int kTogether = 8;  // slices whose loads are under way
    for (int first = 0; first < count; first += kTogether) {
      float parts[kTogether][kEach];
#pragma unroll
      for (int s = 0; s < kTogether; ++s) {
        const bool exists = first + s < count;
        const int of_block = exists ? (first + s) >> shift : 0;
        const float* at = shared.sums(p, (first + s) & shift) + r * kWgmmaSumsStride + lane_index();
#pragma unroll
        for (int q = 0; q < kEach; ++q) {
          parts[s][q] = exists ? load_of_block(at + q * kWarpSize, of_block) : 0.0F;
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
    hold(row_sums);
    finish_row(p.linear.args, row, block.outputs, row_sums);
  }
}

// The slices of this block, whose sums stay in its shared memory.
template <typename T, typename Shape>
__device__ void multiply_slices(const WgmmaWay& way, typename Shape::Shared& shared) {
  grid_dependency_wait();
  WgmmaWarp<T, Shape> warp{way.p, shared};
  int slice = 0;
  for (int begin = way.begin; begin < way.end; begin += way.p.linear.slices.tiles, ++slice) {
    warp.run(begin, slice_end(way.p.linear, begin));
    // The last one's place is that of stages that others still read.
    if (slice == way.p.num_slices - 1) group_barrier(kWgmmaThreads);
    store_sums(warp.sums, shared.sums(way.p, slice));
    warp.clear();
  }
}

// A block some slices; those of a cluster have the same outputs and rows.
template <typename T, int kRows>
__global__ void __launch_bounds__(WgmmaShape<kRows>::kClusterThreads,
                                  WgmmaShape<kRows>::kClusterBlocks)
    linear_wgmma_cluster_kernel(WgmmaParams p) {
  using Shape = WgmmaShape<kRows>;
  auto& shared = begin_wgmma<Shape>(p);
  const int of_block = p.num_slices * p.linear.slices.tiles;
  const int begin = block_index().z * of_block;
  const int end = begin + of_block < p.linear.k_tiles ? begin + of_block : p.linear.k_tiles;
  const WgmmaWay way{p, begin, end, block_index().x, p.num_works()};
  const bool multiplies = warp_index() < kWgmmaWarps;
  if (multiplies) {
    multiply_slices<T, Shape>(way, shared);
  } else {
    fill_stages<Shape, Shape::kClusterCopyWarps>(way, shared);
  }
  cluster_barrier();
  if (multiplies) add_slices<kRows>(p, way.block, shared);
  cluster_barrier_alone();  // until then others read this block's shared memory
}

}  // namespace lmtp::kernels::cuda
