// What decode and prefill share: every operation that determines a row's bits.
#pragma once

#include <device_primitives.cuh>

#include <bit>
#include <cmath>
#include <cstdint>

#include "cuda/attention.h"
#include "cuda/kv_store.h"

namespace lmtp::kernels::cuda {

inline constexpr int kStepBlocks = 4;
inline constexpr int kStepTokens = kStepBlocks * kBlockSize;
inline constexpr int kSplitSteps = kAttentionSplit / kStepTokens;
inline constexpr int kSplitBlocks = kAttentionSplit / kBlockSize;
inline constexpr int kTileRows = kTileSide;  // (query, head) pairs of a tile
inline constexpr int kQuadLanes = 4;         // lanes that share a row of a tile
inline constexpr float kLog2E = 1.44269504088896341F;
inline constexpr int kDecodePairsMax = kTileRows;
// Shared memory that a block may have on every supported device: 8.6, 8.9 and 12.0 have no more, so
// that heads of up to 256 dimensions run on consumer cards.
inline constexpr std::size_t kLeastSharedBytes = std::size_t{99} << 10;

// Keys and values in type T: what products take them as, and what a lane has of a tile.
template <typename T>
struct Kept {
  using Operand = T;
  using Lane = Words4;
  __device__ static Words4 widened(const Words4& lane) { return lane; }
};
template <>
struct Kept<E4M3> {
  using Operand = BF16;
  using Lane = Words2;

  // Of two codes in the upper bytes of 16 bits.
  __device__ static std::uint32_t widened_pair(std::uint32_t codes) {
    constexpr std::uint32_t kSigns = 0x80008000U;
    constexpr std::uint32_t kFactors = 0x7B807B80U;  // 2^120: from bf16's bias to that of e4m3
    const std::uint32_t shifted = ((codes >> 4) & 0x07F007F0U) | (codes & kSigns);
    // 0x7F is not a number: all bits of the exponent.
    const std::uint32_t nan = ((codes & 0x7F007F00U) + 0x01000100U) & kSigns;
    constexpr std::uint32_t kNegativeZeros = 0x80008000U;
    return fma_pairs<BF16>(shifted, kFactors, kNegativeZeros) | (nan - (nan >> 8));
  }
  __device__ static Words4 widened(const Words2& lane) {
    return {{widened_pair(lane.words[0] << 8), widened_pair(lane.words[0]),
             widened_pair(lane.words[1] << 8), widened_pair(lane.words[1])}};
  }
};
template <typename T>
using OperandOf = typename Kept<T>::Operand;
template <typename T>
using LaneOf = typename Kept<T>::Lane;
// Words4 of a tile as it is kept.
template <typename T>
inline constexpr int kKeptVectors = kTileVectors* static_cast<int>(sizeof(LaneOf<T>)) /
                                    static_cast<int>(sizeof(Words4));

// Floats of a part, a multiple of 4 since its sums are read by fours.
constexpr int partial_floats(int rows, int dim_tiles) {
  return ceil_divide(rows * (dim_tiles * kTileSide + 2), 4) * 4;
}

struct AttentionParams {
  const float* queries;
  std::int64_t query_stride;
  float* y;
  std::int64_t y_stride;
  KvLayer cache;
  int dim_tiles;
  int value_tiles;  // decode: as value_tiles_of() says
  int group;        // heads that share one of the cache
  float scale;
  float soft_cap;
  std::int32_t window;
  const float* sinks;
  int num_sequences;
  const std::int32_t* cu_seqlens;
  const std::int32_t* first_positions;
  const std::int32_t* block_offsets;
  const std::int32_t* block_tables;
  const std::int32_t* table_starts;
  bool queries_aligned;
  // (query, head) pairs of a sequence up to which the decode kernel takes it.
  int decode_pairs_max;
  // Decode: [split][kv head] parts of partial_size() floats; the splits of all sequences in order.
  float* partials;
  std::uint32_t* counters;  // [first part of a sequence][kv head], of its splits that are done
  std::uint32_t zero = 0;   // unknown to the compiler: score_keys()
  int splits_max;
  // Decode has a block for each part of all sequences; 0: for each split up to splits_max of each.
  int num_parts = 0;
  int partial_rows;  // [1, kTileRows]

  __device__ int head_dim() const { return cache.head_dim; }
  // Sums [partial_rows][16 dim_tiles], then maxima and totals [partial_rows].
  __device__ int partial_size() const { return partial_floats(partial_rows, dim_tiles); }
};

// The first part of a sequence behind `sequence` others that have num_blocks_before blocks. Each
// has space for the splits of its own blocks, rounded up, and at most one more: a long sequence
// among many short ones takes no more for them.
constexpr std::int64_t first_part_of(std::int64_t sequence, std::int64_t num_blocks_before) {
  return (num_blocks_before + sequence * (kSplitBlocks - 1)) / kSplitBlocks;
}

// The sequence whose parts hold that one, by all lanes of a warp: two rounds of loads for up to
// 1,024 sequences. REQUIRES: part >= 0.
__device__ inline int sequence_of_part(const AttentionParams& p, int part) {
  int low = 0;
  int count = p.num_sequences;
  while (count > 1) {
    const int step = ceil_divide(count, kWarpSize);
    const int mine = lane_index() * step;
    const bool exists = mine < count;
    const std::int32_t blocks_before = load_where(exists, p.block_offsets + low + mine);
    const std::uint32_t begun =
        warp_ballot(exists && first_part_of(low + mine, blocks_before) <= part);
    int last = 0;
    while (last + 1 < kWarpSize && (begun >> (last + 1) & 1) != 0) ++last;
    low += last * step;
    count = count - last * step < step ? count - last * step : step;
  }
  return low;
}

// A sequence of the step, as the rows of one head of the cache: pair `q` is query q / group and
// head q % group of those that share it.
struct SequenceRows {
  const AttentionParams& p;
  int first_row;
  int num_pairs;
  std::int32_t first_position;
  std::int32_t table;  // where its blocks begin
  int kv_head;
  std::int64_t first_part;  // of the splits of all sequences

  __device__ SequenceRows(const AttentionParams& params, int sequence, int head)
      : p(params),
        first_row(load_where(true, params.cu_seqlens + sequence)),
        num_pairs((load_where(true, params.cu_seqlens + sequence + 1) - first_row) * params.group),
        first_position(load_where(true, params.first_positions + sequence)),
        kv_head(head) {
    const std::int32_t blocks_before = load_where(true, params.block_offsets + sequence);
    table = load_where(true, params.table_starts + sequence);
    first_part = first_part_of(sequence, blocks_before);
  }

  // The tokens [begin, end) that a pair sees.
  __device__ int end(int pair) const { return first_position + pair / p.group + 1; }
  __device__ int begin(int pair) const {
    const int last = end(pair);
    return p.window > 0 && p.window < last ? last - p.window : 0;
  }
  __device__ int column(int pair) const {
    return (kv_head * p.group + pair % p.group) * p.head_dim();
  }
  __device__ const float* query(int pair) const {
    return p.queries + (first_row + pair / p.group) * p.query_stride + column(pair);
  }
  __device__ float* output(int pair) const {
    return p.y + (first_row + pair / p.group) * p.y_stride + column(pair);
  }
  // By what the sum of a pair's weighted values becomes its output; `max`: by which its weights,
  // whose sum is `total`, are shifted.
  __device__ float inverse_total(int pair, float max, float total) const {
    if (p.sinks == nullptr) return 1.0F / total;
    const float sink = p.sinks[kv_head * p.group + pair % p.group];
    return 1.0F / (total + exp2_fast(sink * kLog2E - max));
  }
  __device__ float* partial(int split) const {
    return p.partials + ((first_part + split) * p.cache.num_kv_heads + kv_head) * p.partial_size();
  }
  // Its own: no two sequences that have blocks begin with the same part.
  __device__ std::uint32_t* counter() const {
    return p.counters + (first_part * p.cache.num_kv_heads + kv_head);
  }
  // The block with that token.
  __device__ const std::int32_t* block_at(int token) const {
    return p.block_tables + (table + token / kBlockSize);
  }
  __device__ std::int32_t block_of(int token) const { return *block_at(token); }
  // The first of its tiles of keys, or of values, in their layer.
  __device__ std::int64_t first_tile(std::int32_t block) const {
    return (std::int64_t{block} * p.cache.num_kv_heads + kv_head) * p.dim_tiles;
  }
  // The first tile of keys, or of values, of the block with that token.
  template <typename T>
  __device__ const Words4* tiles(const void* layer, int token) const {
    return static_cast<const Words4*>(layer) + first_tile(block_of(token)) * kKeptVectors<T>;
  }
};

// What the two rows of a lane (g and g + 8 of its tile) see.
struct LaneRows {
  int begin[2];
  int end[2];

  __device__ LaneRows(const SequenceRows& rows, int first_pair) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int pair = first_pair + lane_index() / kQuadLanes + half * 8;
      const bool exists = pair < rows.num_pairs;
      begin[half] = exists ? rows.begin(pair) : 0;
      end[half] = exists ? rows.end(pair) : 0;
    }
  }
};

// This lane's part of the queries: rows from first_pair, all tiles of dimensions. All loads are in
// flight before the first is used.
template <typename T, int kDimTiles>
__device__ inline void load_queries(const SequenceRows& rows, int first_pair,
                                    Words4 (&queries)[kDimTiles]) {
  const int head_dim = rows.p.head_dim();
  const int first = lane_index() % kQuadLanes * 4;
  Floats4 fours[kDimTiles][2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int pair = first_pair + lane_index() / kQuadLanes + half * 8;
    const bool exists = pair < rows.num_pairs;
    const float* query = rows.query(exists ? pair : 0) + first;
    if (rows.p.queries_aligned) {
#pragma unroll
      for (int d = 0; d < kDimTiles; ++d) {
        fours[d][half] = load_where(exists && d * kTileSide + first < head_dim,
                                    reinterpret_cast<const Floats4*>(query + d * kTileSide));
      }
    } else {
#pragma unroll
      for (int d = 0; d < kDimTiles; ++d) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          fours[d][half].values[i] =
              load_where(exists && d * kTileSide + first + i < head_dim, query + d * kTileSide + i);
        }
      }
    }
  }
#pragma unroll
  for (int d = 0; d < kDimTiles; ++d) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Floats4& four = fours[d][half];
      queries[d].words[half] = round_pair<T>(four.values[0], four.values[1]);
      queries[d].words[half + 2] = round_pair<T>(four.values[2], four.values[3]);
    }
  }
}

// Scores of 16 rows and 64 tokens: [block][tokens 0 to 7, 8 to 15][as mma_m16n8k16's c].
using Scores = float[kStepBlocks][2][4];

// Turns products into scores as exponents of two.
__device__ inline void scale_scores(const AttentionParams& p, Scores& scores) {
  float(&all)[kStepBlocks * 2 * 4] = reinterpret_cast<float(&)[kStepBlocks * 2 * 4]>(scores);
  if (p.soft_cap > 0.0F) {
#pragma unroll
    for (float& score : all) {
      // tanh(x) = 1 - 2 / (1 + e^2x)
      const float x = divide_fast(score * p.scale, p.soft_cap);
      const float tanh = 1.0F - divide_fast(2.0F, 1.0F + exp2_fast(x * (2.0F * kLog2E)));
      score = p.soft_cap * kLog2E * tanh;
    }
  } else {
    const float factor = p.scale * kLog2E;
#pragma unroll
    for (float& score : all) score *= factor;
  }
}

// -infinity where a row does not see the token. `first`: the step's first token.
__device__ inline void hide_scores(const LaneRows& rows, int first, Scores& scores) {
  float(&all)[kStepBlocks * 2 * 4] = reinterpret_cast<float(&)[kStepBlocks * 2 * 4]>(scores);
#pragma unroll
  for (int i = 0; i < kStepBlocks * 2 * 4; ++i) {
    const int token = first + i / 4 * 8 + lane_index() % kQuadLanes * 2 + i % 2;
    const bool seen = token >= rows.begin[i / 2 % 2] && token < rows.end[i / 2 % 2];
    all[i] = seen ? all[i] : -INFINITY;
  }
}

// The largest score of each of a lane's rows, known to all lanes of the row.
__device__ inline void row_maxima(const Scores& scores, float (&maxima)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float best = -INFINITY;
#pragma unroll
    for (int b = 0; b < kStepBlocks; ++b) {
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        best = fmaxf(best, fmaxf(scores[b][side][2 * half], scores[b][side][2 * half + 1]));
      }
    }
    best = fmaxf(best, shuffle_xor(best, 1));
    maxima[half] = fmaxf(best, shuffle_xor(best, 2));
  }
}

// The shift by a maximum: 0 for a row that has seen no token yet.
__device__ inline float finite_shift(float max) { return max == -INFINITY ? 0.0F : max; }

// The factor for sums relative to `old_max` when `new_max` replaces it; 1 where they are the same,
// 0 where nothing was summed.
__device__ inline float rescale(float old_max, float new_max) {
  return exp2_fast(old_max - finite_shift(new_max));
}

// Turns scores into 2^(score - max), operand A of the product with values; all lanes of a row get
// its sum.
template <typename T>
__device__ inline void soften(const Scores& scores, const float (&maxima)[2],
                              Words4 (&weights)[kStepBlocks], float (&sums)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float shift = finite_shift(maxima[half]);
    float sum = 0.0F;
#pragma unroll
    for (int b = 0; b < kStepBlocks; ++b) {
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const float low = exp2_fast(scores[b][side][2 * half] - shift);
        const float high = exp2_fast(scores[b][side][2 * half + 1] - shift);
        sum += low;
        sum += high;
        weights[b].words[side * 2 + half] = round_pair<T>(low, high);
      }
    }
    sum += shuffle_xor(sum, 1);
    sums[half] = sum + shuffle_xor(sum, 2);
  }
}

// Zeroes the values of tokens outside [begin, end) in a block that begins at `first`: they are
// unwritten or stale, and 0 times NaN is not 0.
__device__ inline Words4 keep_tokens(Words4 values, int first, int begin, int end) {
#pragma unroll
  for (int upper = 0; upper < 2; ++upper) {
    const int token = first + upper * 8 + lane_index() % kQuadLanes * 2;
    const std::uint32_t low = token >= begin && token < end ? 0x0000FFFFU : 0U;
    const std::uint32_t high = token + 1 >= begin && token + 1 < end ? 0xFFFF0000U : 0U;
    values.words[upper] &= low | high;
    values.words[upper + 2] &= low | high;
  }
  return values;
}

// sums [16 rows][16 dimensions] += weights [16 rows][16 tokens] values.
template <typename T>
__device__ inline void weigh(float (&sums)[2][4], const Words4& weights, const Words4& values) {
  mma_m16n8k16<T>(sums[0], weights, values.words[0], values.words[1]);
  mma_m16n8k16<T>(sums[1], weights, values.words[2], values.words[3]);
}

__device__ inline void scale_rows(float (&sums)[2][4], const float (&factors)[2]) {
#pragma unroll
  for (int side = 0; side < 2; ++side) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[side][i] *= factors[i / 2];
  }
}

// A row's splits so far, and how the next one is added.
struct RowState {
  float max = -INFINITY;
  float total = 0.0F;
  float of_old = 0.0F;  // factors of the sums of the last merge
  float of_new = 0.0F;

  __device__ void merge(float split_max, float split_total) {
    const float highest = fmaxf(max, split_max);
    of_old = rescale(max, highest);
    of_new = rescale(split_max, highest);
    max = highest;
    total = fmaf(split_total, of_new, total * of_old);
  }
  __device__ float merged(float sum, float split_sum) const {
    return fmaf(split_sum, of_new, sum * of_old);
  }
};

// Turns a sum into an output. Adding 0 removes -0, which depends on steps that a row does not see.
__device__ inline float normalized(float sum, float inverse_total) {
  return sum * inverse_total + 0.0F;
}

}  // namespace lmtp::kernels::cuda
