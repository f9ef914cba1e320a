// What the attention kernels share (paged FlashAttention, Dao et al. 2022: an online softmax over
// fixed splits of kAttentionSplit tokens): a tile of queries, its scores and weights, the merging
// of splits. A tile shares loads only: each query's operations are its own.
#pragma once

#include "kernel_units.h"
#include "kernels/attention.h"

namespace lmtp::kernels::LMTP_KERNELS_ISA {

inline constexpr int kTileQueriesMax = 18;
// Queries whose sums fit the registers together.
inline constexpr int kQueriesMax = kRegisters == 32 ? 6 : 3;
// `queries` where they fit the registers, else 1, for tables of kernels.
constexpr int side_by_side(int queries) { return queries <= kQueriesMax ? queries : 1; }
// Vectors of a value row that are summed at a time.
inline constexpr int kValueVectors = 4;
// From the block that is read to the one that is prefetched.
inline constexpr int kBlocksAhead = 8;
inline constexpr int kAheadLevel = 2;  // L2, as __builtin_prefetch numbers it: L1 holds fewer
inline constexpr int kKeyVectors = kBlockSize / kLanes;

// Queries of one sequence that share a head of the cache, and what is known of them after the
// splits so far.
struct QueryTile {
  int count = 0;
  bool has_sinks = false;
  float sinks[kTileQueriesMax];           // where it has_sinks
  const float* queries[kTileQueriesMax];  // [head_dim]
  float* outputs[kTileQueriesMax];        // [head_dim]
  // Tokens [first_visible, num_visible), both ascending over queries.
  std::int64_t first_visible[kTileQueriesMax];
  std::int64_t num_visible[kTileQueriesMax];
  float max[kTileQueriesMax];
  float sum[kTileQueriesMax] = {};
  alignas(64) float total[kTileQueriesMax][kHeadDimMax];
};

// Tokens [begin, end) of a split, none where begin == end.
struct Visible {
  std::int64_t begin;
  std::int64_t end;
};

// What query q sees of one split.
inline Visible visible_in(const QueryTile& tile, int q, std::int64_t split) {
  const std::int64_t left = tile.num_visible[q] - split;
  const std::int64_t hidden = tile.first_visible[q] - split;
  const std::int64_t end = left < 0 ? 0 : left < kAttentionSplit ? left : kAttentionSplit;
  return {hidden < 0 ? 0 : hidden < end ? hidden : end, end};
}

// The blocks of one sequence, for one head of the cache.
struct HeadBlocks {
  const KvLayer& cache;
  const std::int32_t* table;
  int head;
  std::int64_t first = 0;            // the block at table[0]; those before it are not asked for
  std::int64_t begin = 0;            // of those that are read
  std::int64_t end = 0;              // behind the last one
  const HeadBlocks* next = nullptr;  // what is read then; null: not known

  const float* keys(std::int64_t block) const {
    return cache.key_units(table[block - first]) +
           std::int64_t{head} * cache.key_rows() * kBlockSize;
  }
  const float* values(std::int64_t block) const {
    return cache.value_units(table[block - first]) +
           std::int64_t{head} * cache.value_rows() * padded_head_dim(cache.head_dim);
  }

  // What is read kBlocksAhead blocks later, to be prefetched: a split's keys are read, then its
  // values, then the next one's keys. Blocks lie apart, so that the processor does not foresee
  // them.
  const float* behind_keys(std::int64_t block) const {
    const std::int64_t last = split_end(block) - 1;
    const std::int64_t ahead = block + kBlocksAhead;
    if (ahead <= last) return keys(ahead);
    const std::int64_t split = block / kSplitBlocks * kSplitBlocks;
    const std::int64_t value = ahead - last - 1 + (split < begin ? begin : split);
    return values(value < last ? value : last);
  }
  const float* behind_values(std::int64_t block) const {
    const std::int64_t ahead = block + kBlocksAhead;
    if (ahead < end) return ahead < split_end(block) ? values(ahead) : keys(ahead);
    if (next == nullptr) return values(end - 1);
    const std::int64_t key = next->begin + ahead - end;
    return next->keys(key < next->end ? key : next->end - 1);
  }

 private:
  static constexpr std::int64_t kSplitBlocks = kAttentionSplit / kBlockSize;
  std::int64_t split_end(std::int64_t block) const {
    const std::int64_t behind = (block / kSplitBlocks + 1) * kSplitBlocks;
    return behind < end ? behind : end;
  }
};

using Attend = void (*)(QueryTile&, const HeadBlocks&, float scale, float cap);

// Blocks whose scores are computed together: as many as fit the registers.
constexpr int score_blocks_for(int queries) {
  const int blocks = kRegisters * 3 / 4 / (queries * kKeyVectors);
  return blocks < 1 ? 1 : blocks > 8 ? 8 : blocks;
}

// work.operator()<count>() for the last vectors of a value row, if there are any.
template <class Work>
inline void with_vectors(int count, const Work& work) {
  static_assert(kValueVectors == 4);
  if (count == 1) work.template operator()<1>();
  if (count == 2) work.template operator()<2>();
  if (count == 3) work.template operator()<3>();
}

template <int kVectors>
inline void prefetch_vectors(const float* at) {
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; v += kFloatsPerLine / kLanes) {
    __builtin_prefetch(at + v * kLanes, 0, kAheadLevel);
  }
}

// scores[q][kBlocks * 16] = scale * query q times the keys of some blocks, each of `rows` rows of
// units: one lane is one token, its chain is over rows. Meanwhile the blocks at `ahead` are
// prefetched.
template <WeightType kType, int kQueries, int kBlocks>
inline void score_blocks(const float* const* queries, const float* const* keys,
                         const float* const* ahead, int rows, float scale,
                         float (*scores)[kAttentionSplit], std::int64_t at) {
  constexpr int kVectors = kBlocks * kKeyVectors;
  F sums[kQueries][kVectors];
  for (int q = 0; q < kQueries; ++q) {
    for (int v = 0; v < kVectors; ++v) sums[q][v] = zero();
  }
  for (int row = 0; row < rows; ++row) {
#pragma GCC unroll 16
    for (int b = 0; b < kBlocks; ++b) prefetch_vectors<kKeyVectors>(ahead[b] + row * kBlockSize);
    F key[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      key[v] = load(keys[v / kKeyVectors] + row * kBlockSize + v % kKeyVectors * kLanes);
    }
#pragma GCC unroll 16
    for (int q = 0; q < kQueries; ++q) {
      const F query = broadcast(queries[q][row]);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sums[q][v] = dot<kType>(query, key[v], sums[q][v]);
    }
  }
  for (int q = 0; q < kQueries; ++q) {
    for (int v = 0; v < kVectors; ++v) {
      store(scores[q] + at + v * kLanes, multiply(sums[q][v], broadcast(scale)));
    }
  }
}

// scores[begin, end) become cap * tanh(score / cap). REQUIRES: begin is a multiple of kLanes.
inline void cap_scores(float* scores, std::int64_t begin, std::int64_t end, float cap) {
  const F limit = broadcast(cap);
  for (std::int64_t t = begin; t < end; t += kLanes) {
    store(scores + t, multiply(tanh(divide(load(scores + t), limit)), limit));
  }
}

// Turns scores[begin, count) into e^(score - max), those before into zero; sets their maximum and
// sum.
inline void soften(float* scores, std::int64_t begin, std::int64_t count, float* max, float* sum) {
  for (std::int64_t t = 0; t < begin; ++t) scores[t] = -__builtin_inff();
  const F lowest = broadcast(-__builtin_inff());
  const std::int64_t padded = (count + kLanes - 1) / kLanes * kLanes;
  if (count < padded) {
    const std::int64_t last = padded - kLanes;
    store(scores + last, keep_first(load(scores + last), lowest, static_cast<int>(count - last)));
  }
  F best = lowest;
  for (std::int64_t t = 0; t < padded; t += kLanes) {
    // NaN wins, so that it reaches the output.
    best = greater_of(best, load(scores + t));
  }
  *max = max_lanes(best);
  const F shift = broadcast(*max);
  F total = zero();
  for (std::int64_t t = 0; t < padded; t += kLanes) {
    const F power = exp(subtract(load(scores + t), shift));
    store(scores + t, power);
    total = add(total, power);
  }
  *sum = sum_lanes(total);
}

// Adds a split's (max, sum, values) to a query's.
inline void merge(QueryTile& tile, int q, int width, float max, float sum, const float* values) {
  float* total = tile.total[q];
  if (tile.sum[q] == 0.0F) {
    tile.max[q] = max;
    tile.sum[q] = sum;
    __builtin_memcpy(total, values, sizeof(float) * static_cast<unsigned>(width));
    return;
  }
  const float highest = tile.max[q] < max ? max : tile.max[q];
  float factors[2 * kLanes] = {tile.max[q] - highest, max - highest};
  store(factors, exp(load(factors)));
  const F old_factor = broadcast(factors[0]);
  const F new_factor = broadcast(factors[1]);
  for (int d = 0; d < width; d += kLanes) {
    store(total + d,
          multiply_add(load(values + d), new_factor, multiply(load(total + d), old_factor)));
  }
  tile.sum[q] = tile.sum[q] * factors[0] + sum * factors[1];
  tile.max[q] = highest;
}

// By what a query's merged values become its output.
inline float output_factor(const QueryTile& tile, int q) {
  if (!tile.has_sinks) return 1.0F / tile.sum[q];
  const float highest = tile.max[q] < tile.sinks[q] ? tile.sinks[q] : tile.max[q];
  float factors[2 * kLanes] = {tile.max[q] - highest, tile.sinks[q] - highest};
  store(factors, exp(load(factors)));
  return factors[0] / (tile.sum[q] * factors[0] + factors[1]);
}

// Writes the outputs from the merged splits. REQUIRES: each query saw a token.
inline void write_outputs(const QueryTile& tile, int head_dim) {
  for (int q = 0; q < tile.count; ++q) {
    const F inverse = broadcast(output_factor(tile, q));
    for (int d = 0; d < head_dim; d += kLanes) {
      const int count = head_dim - d < kLanes ? head_dim - d : kLanes;
      store_first(tile.outputs[q] + d, multiply(load(tile.total[q] + d), inverse), count);
    }
  }
}

}  // namespace lmtp::kernels::LMTP_KERNELS_ISA
