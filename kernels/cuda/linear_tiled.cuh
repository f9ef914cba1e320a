// The linear of many rows: a block takes some outputs of some rows, weights and inputs through
// shared memory in stages that are copied ahead. tiled_plan_for() in linear.cu chooses the shape of
// blocks, which decides which thread computes an element, not in which order.
//
// Where blocks are few, several share the outputs and rows of one: each takes some slices in a row
// and leaves what it has in scratch memory: the first the sum of its slices, which is where the sum
// of all begins, the others each slice's. The block that is done last adds these in order.
#pragma once

#include "cuda/last_block.cuh"
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
  static constexpr std::size_t kPartialBytes =
      sizeof(float) * kOutputs * kTileSide * kRows * kTileSide;
};

// Outputs x rows. A warp's tiles are as large as registers for its sums allow, since it reads
// kWarpOutputs + kWarpRows tiles of shared memory for kWarpOutputs * kWarpRows products; with four
// warps at least, one for each tensor core of a multiprocessor.
using Tiled128x128 = TiledShape<8, 8, 4, 2, 3>;
using Tiled128x64 = TiledShape<8, 4, 4, 2, 4>;
using Tiled64x64 = TiledShape<4, 4, 2, 2, 4>;

template <typename Shape>
Grid tiled_grid(std::int64_t m, std::int64_t n, int splits) {
  return {static_cast<int>(ceil_divide<std::int64_t>(num_tiles(m), Shape::kRows)),
          static_cast<int>(ceil_divide<std::int64_t>(num_tiles(n), Shape::kOutputs)), splits};
}

// What `splits` blocks leave that share an output's slices: blocks' parts, one behind another.
__host__ __device__ constexpr int num_partials(const Slices& slices, int slices_each, int splits,
                                               bool is_exact) {
  return is_exact ? splits : 1 + slices.count - slices_each;
}

// A matrix in tiles, the first of a block's rows of them, and where its inputs end.
struct BlockTiles {
  const Words4* matrix;  // [num_rows][k_tiles] tiles
  int num_rows;
  int k_tiles;
  int first_row;
  int end;
};

// Starts the copies of a block's tiles of the inputs [k_tile, k_tile + kStageInputs); those that do
// not exist, or are another block's, become zero.
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
    const bool exists = row < from.num_rows && k_tile + input < from.end;
    const std::int64_t tile = std::int64_t{row} * from.k_tiles + k_tile + input;
    copy_async(&to[side][input][vector], from.matrix + (exists ? tile * kTileVectors + vector : 0),
               exists);
  }
}

template <typename T, typename Shape>
struct TiledWarp {
  static constexpr int kOutputs = Shape::kWarpOutputs;
  static constexpr int kRows = Shape::kWarpRows;
  static constexpr int kVectors = kOutputs * kRows * 2;  // of a lane's part of a partial

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

  // The slice of a block that is not the first.
  __device__ void end_slice(Floats4* partial) {
    store_partial(partial, sums);
    clear(sums);
  }

  // A thread's vectors are as far apart as a block has threads, so that a warp's are side by side.
  template <typename Sum>
  __device__ static void store_partial(Floats4* to, const Sum (&values)[kOutputs][kRows * 2][4]) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      Floats4 four;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        four.values[i] = std::bit_cast<float>(values[v / (kRows * 2)][v % (kRows * 2)][i]);
      }
      store(to + v * Shape::kThreads, four);
    }
  }

  // Adds what all blocks have left for these outputs, in order. Zeros change no sum.
  __device__ void add_partials(const Floats4* from, int count) {
    constexpr int kTogether = 16 / kVectors;  // whose loads are under way, in half the registers
    clear(sums);
    clear(totals);
#pragma unroll 1
    for (int first = 0; first < count; first += kTogether) {
      Floats4 loaded[kTogether][kVectors];
#pragma unroll
      for (int i = 0; i < kTogether * kVectors; ++i) {
        const int partial = first + i / kVectors;
        loaded[i / kVectors][i % kVectors] = load_fresh_where(
            partial < count, from + (partial * kVectors + i % kVectors) * Shape::kThreads);
      }
#pragma unroll
      for (int i = 0; i < kTogether * kVectors * 4; ++i) {
        const int v = i / 4 % kVectors;
        const float value = loaded[i / 4 / kVectors][v].values[i % 4];
        if constexpr (kIsExact<T>) {
          sums[v / (kRows * 2)][v % (kRows * 2)][i % 4] += std::bit_cast<SumOf<T>>(value);
        } else {
          totals[v / (kRows * 2)][v % (kRows * 2)][i % 4] += value;
        }
      }
    }
  }

  template <typename Sum>
  __device__ static void clear(Sum (&values)[kOutputs][kRows * 2][4]) {
#pragma unroll
    for (int i = 0; i < kVectors * 4; ++i) {
      values[i / 4 / (kRows * 2)][i / 4 % (kRows * 2)][i % 4] = 0;
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

// What the blocks leave that share these outputs and rows.
template <typename T, typename Shape>
struct SharedPartials {
  const LinearParams& p;

  __device__ int count() const {
    return num_partials(p.slices, p.slices_each, grid_size().z, kIsExact<T>);
  }
  // This block's first.
  __device__ int first() const {
    const int z = block_index().z;
    return kIsExact<T> || z == 0 ? z : 1 + (z - 1) * p.slices_each;
  }
  __device__ int outputs() const { return block_index().y * grid_size().x + block_index().x; }
  // This thread's part.
  __device__ Floats4* at(int partial) const {
    constexpr int kVectors = static_cast<int>(Shape::kPartialBytes / sizeof(Floats4));
    return reinterpret_cast<Floats4*>(p.args.split.partials) +
           (std::int64_t{outputs()} * count() + partial) * kVectors + thread_index();
  }
  __device__ std::uint32_t* counter() const { return p.args.split.counters + outputs(); }
};

template <typename T, typename Shape>
__global__ void __launch_bounds__(Shape::kThreads) linear_tiled_kernel(LinearParams p) {
  constexpr int kStages = Shape::kStages;
  auto* stages = shared_memory<typename Shape::Stage>();
  const Grid block = block_index();
  const int run = p.slices_each * p.slices.tiles;
  const int begin = block.z * run;
  const int end = begin + run < p.k_tiles ? begin + run : p.k_tiles;
  const BlockTiles weights = {static_cast<const Words4*>(p.args.weight),
                              static_cast<int>(num_tiles(p.args.n)), p.k_tiles,
                              block.y * Shape::kOutputs, end};
  const BlockTiles inputs = {p.x_tiles, static_cast<int>(num_tiles(p.args.m)), p.k_tiles,
                             block.x * Shape::kRows, end};
  TiledWarp<T, Shape> warp{warp_index() / Shape::kWarpsAlongRows * Shape::kWarpOutputs,
                           warp_index() % Shape::kWarpsAlongRows * Shape::kWarpRows};
  const bool has_work = weights.first_row + warp.output < weights.num_rows &&
                        inputs.first_row + warp.row < inputs.num_rows;
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) {
    // Packed and synchronised before any launch, or written by one that has ended.
    copy_tiles<Shape::kThreads>(weights, begin + s * kStageInputs, stages[s].weights);
  }
  grid_dependency_wait();
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) {
    copy_tiles<Shape::kThreads>(inputs, begin + s * kStageInputs, stages[s].inputs);
    commit_copies();
  }
  const SharedPartials<T, Shape> shared{p};
  int partial = shared.first();
  int slice_end = begin + p.slices.tiles;
  int stage = 0;
  for (int tile = begin; tile < end; tile += kStageInputs) {
    wait_for_copies<kStages - 2>();
    block_barrier();  // all see this stage, and are done with the one before
    auto& ahead = stages[stage == 0 ? kStages - 1 : stage - 1];
    copy_tiles<Shape::kThreads>(weights, tile + (kStages - 1) * kStageInputs, ahead.weights);
    copy_tiles<Shape::kThreads>(inputs, tile + (kStages - 1) * kStageInputs, ahead.inputs);
    commit_copies();
    if (has_work) warp.multiply(stages[stage], end - tile);
    if (tile + kStageInputs >= slice_end || tile + kStageInputs >= end) {
      if constexpr (!kIsExact<T>) {
        if (block.z == 0) {
          warp.end_slice();
        } else {
          warp.end_slice(shared.at(partial++));
        }
      }
      slice_end += p.slices.tiles;
    }
    stage = stage + 1 == kStages ? 0 : stage + 1;
  }
  wait_for_copies<0>();
  if (grid_size().z > 1) {
    if constexpr (kIsExact<T>) {
      warp.store_partial(shared.at(partial), warp.sums);
    } else if (block.z == 0) {
      warp.store_partial(shared.at(partial), warp.totals);
    }
    auto& num_done = *shared_memory<std::uint32_t>();
    const auto counter = [&] { return shared.counter(); };
    if (!is_last_block(counter, grid_size().z, num_done)) return;
    warp.add_partials(shared.at(0), shared.count());
  }
  warp.write(p, weights.first_row, inputs.first_row);
}

}  // namespace lmtp::kernels::cuda
