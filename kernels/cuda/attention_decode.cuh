// Attention of few queries a sequence: a block takes one split of one head of the cache. Its values
// are copied ahead while each of four warps takes a step of 64 tokens for the scores; the warps
// exchange maxima, and then each takes some tiles of dimensions through all steps in order. Where a
// sequence has several splits, the block of a head that is done last merges them.
#pragma once

#include "cuda/attention_common.cuh"
#include "cuda/last_block.cuh"

namespace lmtp::kernels::cuda {

inline constexpr int kDecodeThreads = kSplitSteps * kWarpSize;

// Wider heads leave no registers for the search of a block's sequence.
inline constexpr int kPartsDimTilesMax = 8;

struct DecodeShared {
  Words4 weights[kSplitBlocks][kTileVectors];
  float maxima[kSplitSteps][kTileRows];
  float sums[kSplitSteps][kTileRows];
  std::uint32_t num_done;  // splits of the sequence and head that were done before this one
  // Then values [kSplitBlocks][value_tiles][kKeptVectors].
  __device__ Words4* values() { return reinterpret_cast<Words4*>(this + 1); }
};
constexpr std::size_t decode_shared_bytes(int value_tiles, int element_bytes) {
  return sizeof(DecodeShared) + static_cast<std::size_t>(element_bytes) * kTileElements *
                                    kSplitBlocks * static_cast<std::size_t>(value_tiles);
}

// Tiles of dimensions whose values of a split a block holds at a time: all, where shared memory
// allows (heads of up to 176 dimensions in 99 KiB), else 8.
inline constexpr int kValueTilesMin = 8;
static_assert(decode_shared_bytes(kValueTilesMin, 2) <= kLeastSharedBytes);
constexpr int value_tiles_of(int dim_tiles, int element_bytes, std::size_t shared_bytes_max) {
  const bool fits = decode_shared_bytes(dim_tiles, element_bytes) <= shared_bytes_max;
  return fits ? dim_tiles : kValueTilesMin;
}

// The tiles [first, first + count) of dimensions, whose values are in shared memory together.
struct ValueTiles {
  int first;
  int count;
};
__device__ inline ValueTiles value_tiles_from(const AttentionParams& p, int first) {
  return {first, p.dim_tiles - first < p.value_tiles ? p.dim_tiles - first : p.value_tiles};
}

// The part of a split that the pairs of a sequence see.
struct SplitPart {
  int first;  // token
  int begin;  // tokens of the sequence that any pair sees
  int end;
  int all_begin;  // tokens that every pair sees
  int all_end;
  int first_step;
  int end_step;

  __device__ SplitPart(const SequenceRows& rows, int split)
      : first(split * kAttentionSplit),
        begin(rows.begin(0)),
        end(rows.end(rows.num_pairs - 1)),
        all_begin(rows.begin(rows.num_pairs - 1)),
        all_end(rows.end(0)),
        first_step(begin > first ? (begin - first) / kStepTokens : 0),
        end_step(ceil_divide(end - first, kStepTokens)) {
    end_step = end_step < kSplitSteps ? end_step : kSplitSteps;
  }

  __device__ bool empty() const { return first_step >= end_step; }
  // Whether every pair sees these tokens. Most steps are such, and a warp alone on its part of a
  // multiprocessor takes as long as its instructions are many.
  __device__ bool all_see(int token, int count) const {
    return token >= all_begin && token + count <= all_end;
  }
  __device__ bool has_block(int token) const { return token + kBlockSize > begin && token < end; }
  __device__ int first_split() const { return begin / kAttentionSplit; }
  __device__ int end_split() const { return ceil_divide(end, kAttentionSplit); }
  // Exactly those are not empty().
  __device__ int num_splits() const { return end_split() - first_split(); }
};

// Starts the copies of the split's values, zeros for blocks that no pair sees.
template <typename T>
__device__ inline void copy_values(const SequenceRows& rows, const SplitPart& part,
                                   const ValueTiles& tiles, Words4* values) {
  constexpr int kBlocksEach = kSplitBlocks / kSplitSteps;
  const int of_block = tiles.count * kKeptVectors<T>;
  const auto* layer =
      static_cast<const Words4*>(rows.p.cache.values) + tiles.first * kKeptVectors<T>;
  const int first = part.first_step * kStepBlocks + warp_index();
  std::int32_t blocks[kBlocksEach];
#pragma unroll
  for (int i = 0; i < kBlocksEach; ++i) {
    const int token = part.first + (first + i * kSplitSteps) * kBlockSize;
    blocks[i] = load_where(part.has_block(token), rows.block_at(token));
  }
#pragma unroll
  for (int i = 0; i < kBlocksEach; ++i) {
    const int b = first + i * kSplitSteps;
    if (b < part.end_step * kStepBlocks) {
      const bool wanted = part.has_block(part.first + b * kBlockSize);
      const auto* from = layer + (wanted ? rows.first_tile(blocks[i]) * kKeptVectors<T> : 0);
      for (int at = lane_index(); at < of_block; at += kWarpSize) {
        copy_async(values + b * of_block + at, from + (wanted ? at : 0), wanted);
      }
    }
  }
  commit_copies();
}

// Products of the queries with the 64 keys from token `first` on, by one warp: keys of several
// blocks are in flight at once, as registers allow. REQUIRES: scores are zero.
template <typename T, int kDimTiles>
__device__ inline void score_keys(const SequenceRows& rows, const SplitPart& part, int first,
                                  Scores& scores) {
  constexpr int kBlocks = kDimTiles <= 4 ? kStepBlocks : kDimTiles <= 8 ? 2 : 1;
  const auto* layer = static_cast<const LaneOf<T>*>(rows.p.cache.keys) + lane_index();
  std::int32_t blocks[kStepBlocks];
#pragma unroll
  for (int b = 0; b < kStepBlocks; ++b) {
    const int token = first + b * kBlockSize;
    blocks[b] = load_where(part.has_block(token), rows.block_at(token));
  }
  Words4 queries[kDimTiles];
  load_queries<OperandOf<T>>(rows, 0, queries);
#pragma unroll
  for (int begin = 0; begin < kStepBlocks; begin += kBlocks) {
    LaneOf<T> tiles[kBlocks][kDimTiles];
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      const bool wanted = part.has_block(first + (begin + i) * kBlockSize);
      const LaneOf<T>* keys = layer + rows.first_tile(blocks[begin + i]) * kTileVectors;
#pragma unroll
      for (int d = 0; d < kDimTiles; ++d) {
        tiles[i][d] = load_where(wanted && d < rows.p.dim_tiles, keys + d * kTileVectors);
      }
    }
    // To save registers, ptxas would move loads behind the first products. So that all are in
    // flight at once, every chain of products begins with a zero that depends on all of them.
    std::uint32_t joined = 0;
    if constexpr (kDimTiles > 2) {
#pragma unroll
      for (int i = 0; i < kBlocks * kDimTiles; ++i) {
        joined |= tiles[i / kDimTiles][i % kDimTiles].words[0];
      }
    }
    const auto zero = std::bit_cast<float>(joined & rows.p.zero);
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      scores[begin + i][0][0] = zero;
      scores[begin + i][1][0] = zero;
#pragma unroll
      for (int d = 0; d < kDimTiles; ++d) {
        const Words4 keys = Kept<T>::widened(tiles[i][d]);
        mma_m16n8k16<OperandOf<T>>(scores[begin + i][0], queries[d], keys.words[0], keys.words[2]);
        mma_m16n8k16<OperandOf<T>>(scores[begin + i][1], queries[d], keys.words[1], keys.words[3]);
      }
    }
  }
}

// Maxima of this lane's rows after the steps up to `step`.
__device__ inline void maxima_after(const DecodeShared& shared, int step, float (&maxima)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    maxima[half] = -INFINITY;
    for (int s = 0; s <= step; ++s) {
      maxima[half] = fmaxf(maxima[half], shared.maxima[s][lane_index() / kQuadLanes + 8 * half]);
    }
  }
}

// Writes a tile of dimensions of a lane's rows: to the output where there is one split, else to the
// split's part.
__device__ inline void write_decoded(const SequenceRows& rows, int split, bool whole, int tile,
                                     const float (&sums)[2][4], const float (&maxima)[2],
                                     const float (&totals)[2]) {
  const AttentionParams& p = rows.p;
  const int dims = p.dim_tiles * kTileSide;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int pair = lane_index() / kQuadLanes + 8 * half;
    if (pair >= rows.num_pairs) continue;
    const float inverse = whole ? rows.inverse_total(pair, maxima[half], totals[half]) : 0.0F;
    float* part = whole ? nullptr : rows.partial(split);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int dimension = tile * kTileSide + i / 2 * 8 + lane_index() % kQuadLanes * 2 + i % 2;
      const float sum = sums[i / 2][half * 2 + i % 2];
      if (!whole) {
        part[pair * dims + dimension] = sum;
      } else if (dimension < p.head_dim()) {
        rows.output(pair)[dimension] = normalized(sum, inverse);
      }
    }
    if (!whole && tile == 0 && lane_index() % kQuadLanes == 0) {
      part[p.partial_rows * dims + pair] = maxima[half];
      part[p.partial_rows * (dims + 1) + pair] = totals[half];
    }
  }
}

// The product with the values, and the split's result: a warp takes every fourth tile of dimensions
// through all steps in order.
template <typename T>
__device__ inline void weigh_split(const SequenceRows& rows, const SplitPart& part,
                                   const ValueTiles& tiles, DecodeShared& shared, int split) {
  for (int tile = warp_index(); tile < tiles.count; tile += kSplitSteps) {
    float sums[2][4] = {};
    float maxima[2] = {-INFINITY, -INFINITY};
    float totals[2] = {};
    for (int step = part.first_step; step < part.end_step; ++step) {
      float factors[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = lane_index() / kQuadLanes + 8 * half;
        const float highest = fmaxf(maxima[half], shared.maxima[step][row]);
        factors[half] = rescale(maxima[half], highest);
        totals[half] = fmaf(totals[half], factors[half], shared.sums[step][row]);
        maxima[half] = highest;
      }
      scale_rows(sums, factors);
#pragma unroll
      for (int b = 0; b < kStepBlocks; ++b) {
        const int block = step * kStepBlocks + b;
        const auto* kept = reinterpret_cast<const LaneOf<T>*>(shared.values());
        Words4 values = Kept<T>::widened(
            load(kept + (block * tiles.count + tile) * kTileVectors + lane_index()));
        const int token = part.first + block * kBlockSize;
        if (!part.all_see(token, kBlockSize)) {
          values = keep_tokens(values, token, part.begin, part.end);
        }
        weigh<OperandOf<T>>(sums, load(&shared.weights[block][lane_index()]), values);
      }
    }
    const bool whole = part.num_splits() == 1;
    write_decoded(rows, split, whole, tiles.first + tile, sums, maxima, totals);
    warp_barrier();  // lanes without rows are ahead; the next products need all
  }
}

// Whether the other splits are done; their parts may be read then, by load_fresh_where(). The
// counter is zero again behind the last.
__device__ inline bool is_last_split(const SequenceRows& rows, const SplitPart& part,
                                     DecodeShared& shared) {
  return is_last_block([&] { return rows.counter(); }, part.num_splits(), shared.num_done);
}

// Merges the splits in order and writes the outputs: a thread takes four dimensions of a pair at a
// time.
__device__ inline void merge_splits(const SequenceRows& rows, const SplitPart& part) {
  constexpr int kTogether = 8;  // splits whose loads are under way
  const AttentionParams& p = rows.p;
  const int dims = p.dim_tiles * kTileSide;
  for (int at = thread_index() * 4; at < rows.num_pairs * dims; at += kDecodeThreads * 4) {
    const int pair = at / dims;
    const int dimension = at % dims;
    RowState state;
    Floats4 merged = {};
    for (int first = part.first_split(); first < part.end_split(); first += kTogether) {
      Floats4 sums[kTogether];
      float maxima[kTogether];
      float totals[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const bool exists = first + i < part.end_split();
        const float* of_split = rows.partial(first + i);
        maxima[i] = load_fresh_where(exists, of_split + p.partial_rows * dims + pair);
        totals[i] = load_fresh_where(exists, of_split + p.partial_rows * (dims + 1) + pair);
        sums[i] = load_fresh_where(exists, reinterpret_cast<const Floats4*>(of_split + at));
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        if (first + i >= part.end_split()) break;
        state.merge(maxima[i], totals[i]);
#pragma unroll
        for (int d = 0; d < 4; ++d) {
          merged.values[d] = state.merged(merged.values[d], sums[i].values[d]);
        }
      }
    }
    const float inverse = rows.inverse_total(pair, state.max, state.total);
#pragma unroll
    for (int d = 0; d < 4; ++d) {
      if (dimension + d < p.head_dim()) {
        rows.output(pair)[dimension + d] = normalized(merged.values[d], inverse);
      }
    }
  }
}

// Blocks of a multiprocessor that ptxas is asked for; 0: as it likes. For 6 tiles of dimensions,
// and for 8 and 16 of E4M3, it would rather spill than pass 128 or 168 registers, for 2 have fewer
// loads under way than pass 72.
template <typename T>
constexpr int decode_blocks_min(int dim_tiles) {
  const bool widens = sizeof(LaneOf<T>) < sizeof(Words4);
  if (dim_tiles == 2) return 5;
  if (dim_tiles == 6 || (widens && dim_tiles == 8)) return 3;
  return widens && dim_tiles == 16 ? 2 : 0;
}

template <typename T, int kDimTiles>
__global__ void __launch_bounds__(kDecodeThreads, decode_blocks_min<T>(kDimTiles))
    attention_decode_kernel(AttentionParams p) {
  grid_dependency_wait();
  const bool by_parts = kDimTiles <= kPartsDimTilesMax && p.num_parts > 0;
  const int sequence = by_parts ? sequence_of_part(p, block_index().x) : block_index().z;
  const SequenceRows rows(p, sequence, block_index().y);
  const int split = block_index().x - (by_parts ? static_cast<int>(rows.first_part) : 0);
  if (rows.num_pairs == 0 || rows.num_pairs > p.decode_pairs_max) return;
  const SplitPart part(rows, split);
  if (part.empty()) return;
  auto& shared = *shared_memory<DecodeShared>();
  copy_values<T>(rows, part,
                 kDimTiles <= kValueTilesMin ? ValueTiles{0, p.dim_tiles} : value_tiles_from(p, 0),
                 shared.values());

  const int step = warp_index();
  const bool has_step = step >= part.first_step && step < part.end_step;
  Scores scores = {};
  float maxima[2] = {-INFINITY, -INFINITY};
  if (has_step) {
    const int first = part.first + step * kStepTokens;
    score_keys<T, kDimTiles>(rows, part, first, scores);
    scale_scores(p, scores);
    if (!part.all_see(first, kStepTokens)) hide_scores(LaneRows(rows, 0), first, scores);
    row_maxima(scores, maxima);
  }
  const int row = lane_index() / kQuadLanes;
  if (lane_index() % kQuadLanes == 0) {
    shared.maxima[step][row] = maxima[0];
    shared.maxima[step][row + 8] = maxima[1];
  }
  block_barrier();
  if (has_step) {
    Words4 weights[kStepBlocks];
    float sums[2];
    maxima_after(shared, step, maxima);
    soften<OperandOf<T>>(scores, maxima, weights, sums);
#pragma unroll
    for (int b = 0; b < kStepBlocks; ++b) {
      store(&shared.weights[step * kStepBlocks + b][lane_index()], weights[b]);
    }
    if (lane_index() % kQuadLanes == 0) {
      shared.sums[step][row] = sums[0];
      shared.sums[step][row + 8] = sums[1];
    }
  }
  if constexpr (kDimTiles <= kValueTilesMin) {
    wait_for_copies<0>();
    block_barrier();
    weigh_split<T>(rows, part, {0, p.dim_tiles}, shared, split);
  } else {
    for (int first = 0; first < p.dim_tiles; first += p.value_tiles) {
      const ValueTiles tiles = value_tiles_from(p, first);
      if (first > 0) {
        block_barrier();  // all threads are done with the last values
        copy_values<T>(rows, part, tiles, shared.values());
      }
      wait_for_copies<0>();
      block_barrier();
      weigh_split<T>(rows, part, tiles, shared, split);
    }
  }
  if (part.num_splits() == 1) return;  // the outputs are written
  if (is_last_split(rows, part, shared)) merge_splits(rows, part);
}

}  // namespace lmtp::kernels::cuda
