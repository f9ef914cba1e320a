// Paged attention: FlashAttention's online softmax (Dao et al. 2022) over fixed splits of
// kAttentionSplit tokens. A task is a tile of queries of one sequence that share a key-value head;
// everything is computed for each query alone, the tile only shares the loads.
#pragma once

#include "kernels/attention.h"

namespace lmtp::kernels::LMTP_KERNELS_ISA {

inline constexpr int kQueriesMax = kRegisters == 32 ? 6 : 3;
// Vectors of a value row that are summed at a time.
inline constexpr int kValueVectors = 4;
inline constexpr int kKeyVectors = kBlockSize / kLanes;

// Up to kQueriesMax queries and what is known of them after the splits so far.
struct QueryTile {
  int count = 0;
  const float* queries[kQueriesMax];  // [head_dim]
  float* outputs[kQueriesMax];        // [head_dim]
  // Tokens [first_visible, num_visible), both ascending over queries.
  std::int64_t first_visible[kQueriesMax];
  std::int64_t num_visible[kQueriesMax];
  float max[kQueriesMax];
  float sum[kQueriesMax];
  alignas(64) float total[kQueriesMax][kHeadDimMax];
};

// The blocks of one sequence, for one head of the cache.
struct HeadBlocks {
  const KvLayer& cache;
  const std::int32_t* table;
  int head;

  const float* keys(std::int64_t block) const {
    return cache.f32_keys(table[block]) + std::int64_t{head} * cache.head_dim * kBlockSize;
  }
  const float* values(std::int64_t block) const {
    return cache.f32_values(table[block]) +
           std::int64_t{head} * kBlockSize * padded_head_dim(cache.head_dim);
  }
};

// Blocks whose scores are computed side by side: as many as leave the registers enough room.
constexpr int score_blocks_for(int queries) {
  const int blocks = kRegisters * 3 / 4 / (queries * kKeyVectors);
  return blocks < 1 ? 1 : blocks > 8 ? 8 : blocks;
}

// scores[q][kBlocks * 16] = query q times the keys of some blocks: one lane is one token, its chain
// is over d.
template <int kQueries, int kBlocks>
inline void score_blocks(const QueryTile& tile, const float* const* keys, int head_dim, float scale,
                         float (*scores)[kAttentionSplit], std::int64_t at) {
  constexpr int kVectors = kBlocks * kKeyVectors;
  F sums[kQueries][kVectors];
  for (int q = 0; q < kQueries; ++q) {
    for (int v = 0; v < kVectors; ++v) {
      sums[q][v] = zero();
    }
  }
  for (int d = 0; d < head_dim; ++d) {
    F key[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      key[v] = load(keys[v / kKeyVectors] + d * kBlockSize + v % kKeyVectors * kLanes);
    }
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q) {
      const F query = broadcast(tile.queries[q][d]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        sums[q][v] = multiply_add(query, key[v], sums[q][v]);
      }
    }
  }
  for (int q = 0; q < kQueries; ++q) {
    for (int v = 0; v < kVectors; ++v) {
      store(scores[q] + at + v * kLanes, multiply(sums[q][v], broadcast(scale)));
    }
  }
}

// The scores of the tokens [begin, end) of a split, from whole blocks. REQUIRES: begin is a
// multiple of kBlockSize.
template <int kQueries>
inline void score_split(const QueryTile& tile, const HeadBlocks& blocks, std::int64_t split,
                        std::int64_t begin, std::int64_t end, float scale,
                        float (*scores)[kAttentionSplit]) {
  constexpr int kBlocks = score_blocks_for(kQueries);
  const int head_dim = blocks.cache.head_dim;
  const float* keys[kBlocks];
  std::int64_t at = begin;
  for (; at + (kBlocks - 1) * kBlockSize < end; at += kBlocks * kBlockSize) {
    for (int i = 0; i < kBlocks; ++i) {
      keys[i] = blocks.keys((split + at) / kBlockSize + i);
    }
    score_blocks<kQueries, kBlocks>(tile, keys, head_dim, scale, scores, at);
  }
  for (; at < end; at += kBlockSize) {
    keys[0] = blocks.keys((split + at) / kBlockSize);
    score_blocks<kQueries, 1>(tile, keys, head_dim, scale, scores, at);
  }
}

// scores[begin, end) become cap * tanh(score / cap). REQUIRES: begin is a multiple of kLanes.
inline void cap_scores(float* scores, std::int64_t begin, std::int64_t end, float cap) {
  const F limit = broadcast(cap);
  for (std::int64_t t = begin; t < end; t += kLanes) {
    store(scores + t, multiply(tanh(divide(load(scores + t), limit)), limit));
  }
}

// Turns scores[begin, count) into e^(score - max), those before into zero; gives their maximum and
// their sum.
inline void soften(float* scores, std::int64_t begin, std::int64_t count, float* max, float* sum) {
  for (std::int64_t t = 0; t < begin; ++t) {
    scores[t] = -__builtin_inff();
  }
  const F lowest = broadcast(-__builtin_inff());
  const std::int64_t padded = (count + kLanes - 1) / kLanes * kLanes;
  if (count < padded) {
    const std::int64_t last = padded - kLanes;
    store(scores + last, keep_first(load(scores + last), lowest, static_cast<int>(count - last)));
  }
  F best = lowest;
  for (std::int64_t t = 0; t < padded; t += kLanes) {
    // Not a number wins, so that it is seen in the output.
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

// sums[q] += weights[q][t] * value[t] for the tokens [from, to) of a split, in order; kVectors
// vectors of the value row from dimension `first` on.
template <int kQueries, int kVectors>
inline void weigh_values(const HeadBlocks& blocks, std::int64_t split, std::int64_t from,
                         std::int64_t to, int first, const float (*weights)[kAttentionSplit],
                         float (*sums_at)[kHeadDimMax]) {
  const int row = padded_head_dim(blocks.cache.head_dim);
  F sums[kQueries][kVectors];
  for (int q = 0; q < kQueries; ++q) {
    for (int v = 0; v < kVectors; ++v) {
      sums[q][v] = load(sums_at[q] + first + v * kLanes);
    }
  }
  for (std::int64_t t = from; t < to;) {
    const std::int64_t token = split + t;
    const float* values = blocks.values(token / kBlockSize) + first;
    const std::int64_t block_end = t - token % kBlockSize + kBlockSize;
    const std::int64_t end = block_end < to ? block_end : to;
    values += token % kBlockSize * row;
    for (; t < end; ++t, values += row) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const F value = load(values + v * kLanes);
#pragma GCC unroll 8
        for (int q = 0; q < kQueries; ++q) {
          sums[q][v] = multiply_add(broadcast(weights[q][t]), value, sums[q][v]);
        }
      }
    }
  }
  for (int q = 0; q < kQueries; ++q) {
    for (int v = 0; v < kVectors; ++v) {
      store(sums_at[q] + first + v * kLanes, sums[q][v]);
    }
  }
}

template <int kQueries>
inline void weigh_all_values(const HeadBlocks& blocks, std::int64_t split, std::int64_t from,
                             std::int64_t to, const float (*weights)[kAttentionSplit],
                             float (*sums)[kHeadDimMax]) {
  if (from >= to) {
    return;
  }
  const int width = padded_head_dim(blocks.cache.head_dim);
  int first = 0;
  for (; first + kValueVectors * kLanes <= width; first += kValueVectors * kLanes) {
    weigh_values<kQueries, kValueVectors>(blocks, split, from, to, first, weights, sums);
  }
  for (; first < width; first += kLanes) {
    weigh_values<kQueries, 1>(blocks, split, from, to, first, weights, sums);
  }
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

// What a tile's queries see of one split: tokens [begin, end) of it, none where begin == end.
template <int kQueries>
struct SplitView {
  std::int64_t begin[kQueries];
  std::int64_t end[kQueries];
  // What all of them see; empty where common_begin >= common_end.
  std::int64_t common_begin = 0;
  std::int64_t common_end = kAttentionSplit;

  SplitView(const QueryTile& tile, std::int64_t split) {
    for (int q = 0; q < kQueries; ++q) {
      const std::int64_t left = tile.num_visible[q] - split;
      const std::int64_t hidden = tile.first_visible[q] - split;
      end[q] = left < 0 ? 0 : left < kAttentionSplit ? left : kAttentionSplit;
      begin[q] = hidden < 0 ? 0 : hidden < end[q] ? hidden : end[q];
      common_begin = common_begin < begin[q] ? begin[q] : common_begin;
      common_end = common_end < end[q] ? common_end : end[q];
    }
  }
};

// The values of one split, weighted. The chain of a query is in token order whatever it shares.
template <int kQueries>
inline void weigh_split(const SplitView<kQueries>& view, const HeadBlocks& blocks,
                        std::int64_t split, const float (*weights)[kAttentionSplit],
                        float (*sums)[kHeadDimMax]) {
  const bool shared = view.common_begin < view.common_end;
  for (int q = 0; q < kQueries; ++q) {
    const std::int64_t end = shared ? view.common_begin : view.end[q];
    weigh_all_values<1>(blocks, split, view.begin[q], end, weights + q, sums + q);
  }
  if (!shared) {
    return;
  }
  weigh_all_values<kQueries>(blocks, split, view.common_begin, view.common_end, weights, sums);
  for (int q = 0; q < kQueries; ++q) {
    weigh_all_values<1>(blocks, split, view.common_end, view.end[q], weights + q, sums + q);
  }
}

// REQUIRES: num_visible of the tile's last query is beyond `split`.
template <int kQueries>
inline void attend_split(QueryTile& tile, const HeadBlocks& blocks, std::int64_t split, float scale,
                         float cap) {
  alignas(64) float scores[kQueries][kAttentionSplit];
  alignas(64) float sums[kQueries][kHeadDimMax];
  const int width = padded_head_dim(blocks.cache.head_dim);
  const SplitView<kQueries> view(tile, split);
  const std::int64_t first = view.begin[0] / kBlockSize * kBlockSize;
  score_split<kQueries>(tile, blocks, split, first, view.end[kQueries - 1], scale, scores);
  float maxima[kQueries] = {};
  float totals[kQueries] = {};
  for (int q = 0; q < kQueries; ++q) {
    __builtin_memset(sums[q], 0, sizeof(float) * static_cast<unsigned>(width));
    if (view.begin[q] == view.end[q]) {
      continue;
    }
    if (cap > 0.0F) {
      cap_scores(scores[q], first, view.end[q], cap);
    }
    soften(scores[q], view.begin[q], view.end[q], &maxima[q], &totals[q]);
  }
  weigh_split<kQueries>(view, blocks, split, scores, sums);
  for (int q = 0; q < kQueries; ++q) {
    if (view.begin[q] < view.end[q]) {
      merge(tile, q, width, maxima[q], totals[q], sums[q]);
    }
  }
}

template <int kQueries>
void attend(QueryTile& tile, const HeadBlocks& blocks, float scale, float cap) {
  for (int q = 0; q < kQueries; ++q) {
    tile.sum[q] = 0.0F;
  }
  std::int64_t split = tile.first_visible[0] / kAttentionSplit * kAttentionSplit;
  for (; split < tile.num_visible[kQueries - 1]; split += kAttentionSplit) {
    attend_split<kQueries>(tile, blocks, split, scale, cap);
  }
  const int head_dim = blocks.cache.head_dim;
  for (int q = 0; q < kQueries; ++q) {
    const F inverse = broadcast(1.0F / tile.sum[q]);
    for (int d = 0; d < head_dim; d += kLanes) {
      const int count = head_dim - d < kLanes ? head_dim - d : kLanes;
      store_first(tile.outputs[q] + d, multiply(load(tile.total[q] + d), inverse), count);
    }
  }
}

using Attend = void (*)(QueryTile&, const HeadBlocks&, float, float);
inline constexpr Attend kAttends[] = {nullptr,
                                      attend<1>,
                                      attend<2>,
                                      attend<3>,
                                      attend<kQueriesMax == 6 ? 4 : 1>,
                                      attend<kQueriesMax == 6 ? 5 : 1>,
                                      attend<kQueriesMax == 6 ? 6 : 1>};

// Queries of a sequence that share a head of the cache, in order of position: (row, head) pairs.
inline void attend_tile(const AttentionArgs& args, std::int64_t sequence, int kv_head,
                        std::int64_t first_query) {
  const int group = args.num_heads / args.cache.num_kv_heads;
  const std::int64_t row0 = args.cu_seqlens[sequence];
  const std::int64_t num_queries = (args.cu_seqlens[sequence + 1] - row0) * group;
  QueryTile tile;
  while (tile.count < kQueriesMax && first_query + tile.count < num_queries) {
    const std::int64_t query = first_query + tile.count;
    const std::int64_t row = row0 + query / group;
    const std::int64_t column =
        (kv_head * group + query % group) * std::int64_t{args.cache.head_dim};
    tile.queries[tile.count] = args.queries.row(row) + column;
    tile.outputs[tile.count] = args.y.row(row) + column;
    const std::int64_t end = args.first_positions[sequence] + query / group + 1;
    tile.num_visible[tile.count] = end;
    tile.first_visible[tile.count] = args.window > 0 && args.window < end ? end - args.window : 0;
    ++tile.count;
  }
  const HeadBlocks blocks{args.cache, args.block_tables + args.block_offsets[sequence], kv_head};
  kAttends[tile.count](tile, blocks, args.scale, args.soft_cap);
}

inline void paged_attention(Stream& stream, const AttentionArgs& args) {
  // tile_ends[s]: tiles of one head in the sequences up to s.
  auto* tile_ends = static_cast<std::int32_t*>(
      stream.scratch(sizeof(std::int32_t) * static_cast<std::uint64_t>(args.num_sequences)));
  const int group = args.num_heads / args.cache.num_kv_heads;
  std::int32_t num_tiles = 0;
  for (std::int64_t s = 0; s < args.num_sequences; ++s) {
    const std::int32_t num_queries = (args.cu_seqlens[s + 1] - args.cu_seqlens[s]) * group;
    num_tiles += (num_queries + kQueriesMax - 1) / kQueriesMax;
    tile_ends[s] = num_tiles;
  }
  // Head by head within a sequence: the tiles of one head read the same keys and values, which stay
  // in a cache meanwhile.
  const int num_kv_heads = args.cache.num_kv_heads;
  stream.pool().parallel_for(num_tiles * num_kv_heads, [&](int task, int) {
    std::int64_t low = 0;
    std::int64_t high = args.num_sequences - 1;
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      if (task < tile_ends[middle] * num_kv_heads) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    const std::int32_t tiles_before = low == 0 ? 0 : tile_ends[low - 1];
    const std::int32_t tiles_each = tile_ends[low] - tiles_before;
    const std::int32_t at = task - tiles_before * num_kv_heads;
    attend_tile(args, low, at / tiles_each, std::int64_t{at % tiles_each} * kQueriesMax);
  });
}

}  // namespace lmtp::kernels::LMTP_KERNELS_ISA
