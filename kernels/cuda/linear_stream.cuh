// The linear of few rows (up to 64): every weight is read once, by the warp whose slice it is in,
// from global memory to its registers; many loads are in flight in each warp.
#pragma once

#include "cuda/linear_operands.cuh"

namespace lmtp::kernels::cuda {

// Words4 of weights that a lane has in flight. A warp of several output tiles has the registers of
// two warps, and fewer run beside it.
constexpr int stream_loads(int output_tiles, int row_eights) {
  return output_tiles == 1 || output_tiles * row_eights > 16 ? 8 : 16;
}

// How a block divides its warps: `groups` groups of one warp a slice.
struct StreamBlock {
  int num_slices = 1;
  int groups = 1;

  constexpr int num_warps() const { return num_slices * groups; }
};
constexpr StreamBlock stream_block(int num_slices) {
  return {num_slices, num_slices >= 8 ? 1 : 8 / num_slices};
}

// kOutputTiles tiles of 16 outputs by kRowEights times 8 rows. 8 rows are read as f32, more were
// rounded into tiles before (round_inputs.cuh). Loads are predicated and products are not: what
// does not exist is zero, which changes no sum, and without branches the loads of one product run
// beside the others.
template <typename T, int kOutputTiles, int kRowEights>
struct StreamWarp {
  // Of inputs. Scales of any type and offsets take the registers of half.
  static constexpr int kTilesAhead =
      stream_loads(kOutputTiles, kRowEights) / kOutputTiles / (kHasAnyScales<T> ? 2 : 1);
  static constexpr int kLoadTiles = WeightTiles<T>::kTiles;
  static constexpr int kInputVectors = (kRowEights + 1) / 2;
  static constexpr bool kReadsFloats = kRowEights == 1 && Operands<T>::kReadsFloats;
  // Whose inputs are read together. Codes leave time for other warps'.
  static constexpr int kInputTiles = !kReadsFloats ? 1 : kIsNarrow<T> ? 4 : kTilesAhead;
  using Sum = SumOf<T>;
  using Loaded = typename WeightTiles<T>::Loaded;

  const LinearParams& p;
  WeightTiles<T> weights;
  int num_output_tiles;  // that exist, at most kOutputTiles
  int end;               // of the slice, in tiles of inputs; 0 where the only output tile is none
  Sum sums[kOutputTiles][kRowEights][4] = {};
  Loaded ahead[kTilesAhead / kLoadTiles][kOutputTiles] = {};

  __device__ Loaded load_weights(int tile, int output_tile) const {
    const bool wanted = tile < end && (kOutputTiles == 1 || output_tile < num_output_tiles);
    return weights.load(wanted, output_tile, tile, end);
  }

  // Operands B of a tile's products: two rows of tiles a vector.
  struct Inputs {
    Words4 words[kInputVectors];

    __device__ void multiply(Sum (&to)[kRowEights][4], const Words4& a) const {
#pragma unroll
      for (int r = 0; r < kRowEights; ++r) {
        const Words4& b = words[r / 2];
        multiply_tile<T>(to[r], a, b.words[r % 2], b.words[r % 2 + 2]);
      }
    }
  };

  // From f32, of the tiles [tile, tile + kInputTiles): all are in flight before the first is used.
  __device__ void round_inputs(int tile, Inputs (&inputs)[kInputTiles]) const {
    const int row = lane_index() / 4;
    const float* x =
        p.args.x + row * p.args.x_stride + lane_index() % 4 * 4 + tile * std::int64_t{kTileSide};
    const int left = row < p.args.m ? end - tile : 0;
    Floats4 fours[kInputTiles];
#pragma unroll
    for (int i = 0; i < kInputTiles; ++i) {
      fours[i] = load_where(i < left, reinterpret_cast<const Floats4*>(x + i * kTileSide));
    }
#pragma unroll
    for (int i = 0; i < kInputTiles; ++i) {
      inputs[i].words[0] = {};
      const float(&x4)[4] = fours[i].values;
      inputs[i].words[0].words[0] = round_pair<NumberOf<T>>(x4[0], x4[1]);
      inputs[i].words[0].words[2] = round_pair<NumberOf<T>>(x4[2], x4[3]);
    }
  }

  // From tiles; those of rows that do not exist are not read.
  __device__ Inputs load_inputs(int tile) const {
    Inputs inputs;
#pragma unroll
    for (int r = 0; r < kInputVectors; ++r) {
      const std::int64_t at = std::int64_t{r} * p.k_tiles + tile;
      inputs.words[r] = load_where(tile < end && r * kTileSide < p.args.m,
                                   p.x_tiles + at * kTileVectors + lane_index());
    }
    return inputs;
  }

  // Starts the loads of the first weights of run(tile).
  __device__ void begin(int tile) {
#pragma unroll
    for (int i = 0; i < kTilesAhead; i += kLoadTiles) {
#pragma unroll
      for (int o = 0; o < kOutputTiles; ++o) ahead[i / kLoadTiles][o] = load_weights(tile + i, o);
    }
  }

  // The chain of the tiles [tile, end).
  __device__ void run(int tile) {
    Inputs inputs[kInputTiles];
    if constexpr (!kReadsFloats) inputs[0] = load_inputs(tile);
    for (; tile < end; tile += kTilesAhead) {
#pragma unroll
      for (int i = 0; i < kTilesAhead; ++i) {
        if constexpr (kReadsFloats) {
          if (i % kInputTiles == 0) round_inputs(tile + i, inputs);
        }
        Inputs next;
        if constexpr (!kReadsFloats) next = load_inputs(tile + i + 1);
        constexpr int kLast = kLoadTiles - 1;
#pragma unroll
        for (int o = 0; o < kOutputTiles; ++o) {
          Loaded& loaded = ahead[i / kLoadTiles][o];
          if (i % kLoadTiles == 0) weights.prepare(loaded);
          inputs[i % kInputTiles].multiply(sums[o], weights.operand(loaded, i % kLoadTiles));
          if (i % kLoadTiles == kLast) loaded = load_weights(tile + kTilesAhead + i - kLast, o);
        }
        if constexpr (!kReadsFloats) inputs[0] = next;
      }
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

// How many of the largest blocks a multiprocessor holds at once, at least. Of codes, whose loads
// are of fewer bytes, more warps.
template <typename T>
constexpr int stream_blocks_min(int output_tiles, int row_eights) {
  if (kIsNarrow<T>) return row_eights <= 2 ? 2 : 1;
  return output_tiles == 2 && row_eights <= 4 ? 2 : 1;
}

template <typename T, int kOutputTiles, int kRowEights>
__global__ void __launch_bounds__(stream_threads_max(kOutputTiles),
                                  stream_blocks_min<T>(kOutputTiles, kRowEights))
    linear_stream_kernel(LinearParams p) {
  constexpr int kRegisters = kRowEights * 4;
  const StreamBlock block = stream_block(p.slices.count);
  const int slice = warp_index() % block.num_slices;
  const int group = warp_index() / block.num_slices;
  const int first_tile = (block_index().x * block.groups + group) * kOutputTiles;
  const int left = static_cast<int>(num_tiles(p.args.n)) - first_tile;
  const int begin = slice * p.slices.tiles;
  StreamWarp<T, kOutputTiles, kRowEights> warp{
      p, WeightTiles<T>(p, first_tile), left < kOutputTiles ? left : kOutputTiles,
      kOutputTiles == 1 && left <= 0 ? 0 : slice_end(p, begin)};
  // The row and the output of this lane's part of register i of an output tile.
  const auto row_of = [](int i) { return i / 4 * 8 + lane_index() % 4 * 2 + i % 2; };
  const auto output_of = [first_tile](int o, int i) {
    return (first_tile + o) * kTileSide + i % 4 / 2 * 8 + lane_index() / 4;
  };

  // No running launch writes weights and biases: their loads start before the wait. For up to 8
  // rows so do those for the first register that a warp finishes, in most layers the only one.
  warp.begin(begin);
  float biases[kOutputTiles] = {};
  float residuals[kOutputTiles] = {};
  constexpr bool kHasAddends = kRowEights == 1 && !kHasAnyScales<T>;  // there are no registers
  const bool has_addends = kHasAddends && slice < kRegisters;
#pragma unroll
  for (int o = 0; o < kOutputTiles; ++o) {
    biases[o] = has_addends ? bias_of(p.args, output_of(o, slice)) : 0.0F;
  }
  grid_dependency_wait();
#pragma unroll
  for (int o = 0; o < kOutputTiles; ++o) {
    residuals[o] = has_addends ? residual_of(p.args, row_of(slice), output_of(o, slice)) : 0.0F;
  }
  warp.run(begin);

  // [group][slice][register][lane]
  auto* shared = shared_memory<SumOf<T>>();
  SumOf<T>* mine = shared + warp_index() * kRegisters * kWarpSize + lane_index();
  const SumOf<T>* of_group = shared + group * block.num_slices * kRegisters * kWarpSize;
#pragma unroll
  for (int o = 0; o < kOutputTiles; ++o) {
    block_barrier();
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) mine[i * kWarpSize] = warp.sums[o][i / 4][i % 4];
    block_barrier();
    for (int i = slice; i < kRegisters; i += block.num_slices) {
      SumOf<T> all = 0;
      for (int s = 0; s < block.num_slices; ++s) {
        all += of_group[(s * kRegisters + i) * kWarpSize + lane_index()];
      }
      const float sum =
          value_of<T>(all, row_scale_of<T>(p, row_of(i)), output_scale_of<T>(p, output_of(o, i)));
      if (kHasAddends && i == slice) {
        finish(p.args, row_of(i), output_of(o, i), sum, biases[o], residuals[o]);
      } else {
        finish(p.args, row_of(i), output_of(o, i), sum);
      }
    }
  }
}

}  // namespace lmtp::kernels::cuda
