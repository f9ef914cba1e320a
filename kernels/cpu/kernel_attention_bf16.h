// Attention over keys and values in bf16: queries (scaled), keys, weights (relative to their
// split's maximum) and values are rounded to units of two (kernels/linear.h), sums are f32. A unit
// of values is two tokens, so a split is worked on in whole blocks: what a query does not see has
// the weight zero. Keys and values in e4m3 are widened split by split to the units of bf16 that a
// cache of bf16 would hold.
#pragma once

#include "kernel_attention_tile.h"

namespace lmtp::kernels::LMTP_KERNELS_ISA {

inline constexpr int kUnitsPerBlock = kBlockSize / 2;  // of weights
inline constexpr int kUnitQueriesMax = 16;             // rows of a tile register
static_assert(kUnitQueriesMax <= kTileQueriesMax);

// Queries of a tile, rows of `stride` units.
struct QueryUnits {
  alignas(64) float units[kUnitQueriesMax * kHeadDimMax / 2];
  int stride = 0;
  int count = 0;
};

// The blocks of a split that a tile's queries see something of.
struct SplitBlocks {
  std::int64_t first = 0;  // token of the split at which they begin
  int count = 0;
  int width = 0;  // of a row of values
  const float* keys[kAttentionSplit / kBlockSize];
  const float* values[kAttentionSplit / kBlockSize];
  // What is prefetched while these are read.
  const float* behind_keys[kAttentionSplit / kBlockSize];
  const float* behind_values[kAttentionSplit / kBlockSize];
};

// Units of bf16 of one split's keys, then of its values.
struct WidenedUnits {
  alignas(64) float units[kAttentionSplit / 2 * kHeadDimMax];
};

// `from`: rows of `width` words of four e4m3. Row r becomes the rows 2r and 2r + 1 of units.
inline void widen_e4m3_rows(const float* from, int rows, int width, float* to) {
  for (int row = 0; row < rows; ++row, from += width, to += 2 * width) {
    for (int i = 0; i < width; i += kLanes) {
      F units[2];
      units_of_e4m3(load(from + i), units);
      store(to + i, units[0]);
      store(to + width + i, units[1]);
    }
  }
}

// Widens blocks[0, count), which then point into `to`.
inline void widen_e4m3_blocks(const float** blocks, int count, int rows, int width, float* to) {
  for (int b = 0; b < count; ++b, to += 2 * rows * width) {
    widen_e4m3_rows(blocks[b], rows, width, to);
    blocks[b] = to;
  }
}

// Copies a block's values, with those outside the tokens [begin, end) zero: they may be stale, and
// zero times NaN is not zero.
inline void copy_seen_values(const float* from, int width, std::int64_t begin, std::int64_t end,
                             float* to) {
  for (std::int64_t row = 0; row < kUnitsPerBlock; ++row) {
    const auto sees = [&](std::int64_t token) { return begin <= token && token < end; };
    const std::uint32_t mask =
        (sees(2 * row) ? 0x0000FFFFU : 0U) | (sees(2 * row + 1) ? 0xFFFF0000U : 0U);
    for (std::int64_t at = row * width; at < (row + 1) * width; ++at) {
      std::uint32_t unit = 0;
      __builtin_memcpy(&unit, from + at, sizeof(unit));
      unit &= mask;
      __builtin_memcpy(to + at, &unit, sizeof(unit));
    }
  }
}

// Scores and weighted values by vectors, some queries at a time.
class VectorProducts {
 public:
  explicit VectorProducts(int) {}

  void score(const QueryUnits& queries, const SplitBlocks& blocks,
             float (*scores)[kAttentionSplit]) const {
    const float* rows[kUnitQueriesMax];
    for (int q = 0; q < queries.count; ++q) rows[q] = queries.units + q * queries.stride;
    for (int q = 0; q < queries.count; q += kQueriesMax) {
      kScores[count_of(queries.count - q)](rows + q, queries.stride, blocks, scores + q);
    }
  }

  // sums [count][width]
  void weigh(const float (*weights)[kAttentionSplit / 2], int count, const SplitBlocks& blocks,
             float* sums) const {
    for (int q = 0; q < count; q += kQueriesMax) {
      kWeighs[count_of(count - q)](weights + q, blocks, sums + q * blocks.width);
    }
  }

 private:
  static int count_of(int left) { return left < kQueriesMax ? left : kQueriesMax; }

  template <int kQueries>
  static void score_some(const float* const* queries, int rows, const SplitBlocks& blocks,
                         float (*scores)[kAttentionSplit]) {
    constexpr int kBlocks = score_blocks_for(kQueries);
    int b = 0;
    for (; b + kBlocks <= blocks.count; b += kBlocks) {
      score_blocks<WeightType::kBF16, kQueries, kBlocks>(queries, blocks.keys + b,
                                                         blocks.behind_keys + b, rows, 1.0F, scores,
                                                         blocks.first + b * kBlockSize);
    }
    for (; b < blocks.count; ++b) {
      score_blocks<WeightType::kBF16, kQueries, 1>(queries, blocks.keys + b, blocks.behind_keys + b,
                                                   rows, 1.0F, scores,
                                                   blocks.first + b * kBlockSize);
    }
  }

  template <int kQueries, int kVectors>
  static void weigh_vectors(const float (*weights)[kAttentionSplit / 2], const SplitBlocks& blocks,
                            int first, float* sums_at) {
    F sums[kQueries][kVectors];
    for (int q = 0; q < kQueries; ++q) {
      for (int v = 0; v < kVectors; ++v) sums[q][v] = zero();
    }
    for (int b = 0; b < blocks.count; ++b) {
      const std::int64_t unit = blocks.first / 2 + b * kUnitsPerBlock;
      const float* values = blocks.values[b] + first;
      const float* ahead = blocks.behind_values[b] + first;
      for (int row = 0; row < kUnitsPerBlock;
           ++row, values += blocks.width, ahead += blocks.width) {
        prefetch_vectors<kVectors>(ahead);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          const F value = load(values + v * kLanes);
#pragma GCC unroll 8
          for (int q = 0; q < kQueries; ++q) {
            sums[q][v] =
                dot<WeightType::kBF16>(broadcast(weights[q][unit + row]), value, sums[q][v]);
          }
        }
      }
    }
    for (int q = 0; q < kQueries; ++q) {
      for (int v = 0; v < kVectors; ++v) {
        store(sums_at + q * blocks.width + first + v * kLanes, sums[q][v]);
      }
    }
  }

  template <int kQueries>
  static void weigh_some(const float (*weights)[kAttentionSplit / 2], const SplitBlocks& blocks,
                         float* sums) {
    int first = 0;
    for (; first + kValueVectors * kLanes <= blocks.width; first += kValueVectors * kLanes) {
      weigh_vectors<kQueries, kValueVectors>(weights, blocks, first, sums);
    }
    with_vectors((blocks.width - first) / kLanes, [&]<int kVectors>() {
      weigh_vectors<kQueries, kVectors>(weights, blocks, first, sums);
    });
  }

  using Score = void (*)(const float* const*, int, const SplitBlocks&, float (*)[kAttentionSplit]);
  static constexpr Score kScores[] = {nullptr,
                                      score_some<1>,
                                      score_some<2>,
                                      score_some<3>,
                                      score_some<side_by_side(4)>,
                                      score_some<side_by_side(5)>,
                                      score_some<side_by_side(6)>};
  using Weigh = void (*)(const float (*)[kAttentionSplit / 2], const SplitBlocks&, float*);
  static constexpr Weigh kWeighs[] = {nullptr,
                                      weigh_some<1>,
                                      weigh_some<2>,
                                      weigh_some<3>,
                                      weigh_some<side_by_side(4)>,
                                      weigh_some<side_by_side(5)>,
                                      weigh_some<side_by_side(6)>};
};

// Rounds from[first, end) to units, zeros from `end` to `last`. REQUIRES: first and last are
// multiples of kBlockSize.
inline void round_weights(const float* from, std::int64_t first, std::int64_t last,
                          std::int64_t end, float* to) {
  for (std::int64_t t = first; t < last; t += 2 * kLanes) {
    const auto at = [&](std::int64_t token) {
      const std::int64_t left = end - token;
      return left >= kLanes ? load(from + token)
             : left > 0     ? load_first(from + token, static_cast<int>(left))
                            : zero();
    };
    const std::int64_t left = (last - t) / 2;
    store_first(to + t / 2, units_of_bf16(at(t), at(t + kLanes)),
                left < kLanes ? static_cast<int>(left) : kLanes);
  }
}

// The blocks of a split that a tile's queries see.
inline SplitBlocks blocks_seen(const QueryTile& tile, const HeadBlocks& blocks,
                               std::int64_t split) {
  const std::int64_t begin = visible_in(tile, 0, split).begin;
  const std::int64_t end = visible_in(tile, tile.count - 1, split).end;
  SplitBlocks seen;
  seen.first = begin / kBlockSize * kBlockSize;
  seen.width = padded_head_dim(blocks.cache.head_dim);
  for (std::int64_t t = seen.first; t < end; t += kBlockSize, ++seen.count) {
    const std::int64_t block = (split + t) / kBlockSize;
    seen.keys[seen.count] = blocks.keys(block);
    seen.values[seen.count] = blocks.values(block);
    seen.behind_keys[seen.count] = blocks.behind_keys(block);
    seen.behind_values[seen.count] = blocks.behind_values(block);
  }
  return seen;
}

// Where the first or last block has tokens that none of the tile's queries sees, `first_values` and
// `last_values` get its values with those zeroed.
inline void hide_unseen(const QueryTile& tile, std::int64_t split, float* first_values,
                        float* last_values, SplitBlocks& seen) {
  const std::int64_t begin = visible_in(tile, 0, split).begin;
  const std::int64_t end = visible_in(tile, tile.count - 1, split).end;
  if (begin != seen.first) {
    copy_seen_values(seen.values[0], seen.width, begin - seen.first, kBlockSize, first_values);
    seen.values[0] = first_values;
  }
  if (end % kBlockSize != 0) {
    const float*& last = seen.values[seen.count - 1];
    copy_seen_values(last, seen.width, 0, end % kBlockSize, last_values);
    last = last_values;
  }
}

// Products(count) computes with tiles of `count` queries:
//   score(queries, blocks, scores): scores[q][blocks.first + t] = query q times key t of the blocks
//   weigh(weights, count, blocks, sums): sums [count][blocks.width] = weights[q] times the values,
//     weights [count][units of the split], zero where a query does not see what a tile does
// A query's results are the same bits in any tile, or differ in the sign of a zero.
// `widened`: null where the cache has units of bf16. REQUIRES: num_visible of the tile's last query
// is beyond `split`.
template <class Products>
inline void attend_split_bf16(const Products& products, QueryTile& tile, const HeadBlocks& blocks,
                              const QueryUnits& queries, std::int64_t split, float cap,
                              WidenedUnits* widened) {
  alignas(64) float scores[kUnitQueriesMax][kAttentionSplit];
  alignas(64) float weights[kUnitQueriesMax][kAttentionSplit / 2];
  alignas(64) float sums[kUnitQueriesMax * kHeadDimMax];
  alignas(64) float first_values[kUnitsPerBlock * kHeadDimMax];
  alignas(64) float last_values[kUnitsPerBlock * kHeadDimMax];
  SplitBlocks seen = blocks_seen(tile, blocks, split);
  if (widened != nullptr) {
    widen_e4m3_blocks(seen.keys, seen.count, blocks.cache.key_rows(), kBlockSize, widened->units);
  }
  products.score(queries, seen, scores);
  if (widened != nullptr) {
    widen_e4m3_blocks(seen.values, seen.count, blocks.cache.value_rows(), seen.width,
                      widened->units);
  }
  hide_unseen(tile, split, first_values, last_values, seen);
  const std::int64_t last = seen.first + seen.count * kBlockSize;
  float maxima[kUnitQueriesMax] = {};
  float totals[kUnitQueriesMax] = {};
  for (int q = 0; q < tile.count; ++q) {
    const Visible visible = visible_in(tile, q, split);
    if (visible.begin == visible.end) {
      round_weights(scores[q], seen.first, last, 0, weights[q]);
      continue;
    }
    if (cap > 0.0F) cap_scores(scores[q], seen.first, visible.end, cap);
    soften(scores[q], visible.begin, visible.end, &maxima[q], &totals[q]);
    round_weights(scores[q], seen.first, last, visible.end, weights[q]);
  }
  products.weigh(weights, tile.count, seen, sums);
  for (int i = 0; i < tile.count * seen.width; i += kLanes) {
    // Products of zeros turn -0 into 0, and their number depends on the tile's other queries.
    store(sums + i, add(load(sums + i), zero()));
  }
  for (int q = 0; q < tile.count; ++q) {
    const Visible visible = visible_in(tile, q, split);
    if (visible.begin < visible.end) {
      merge(tile, q, seen.width, maxima[q], totals[q], sums + q * seen.width);
    }
  }
}

template <class Products>
void attend_units(QueryTile& tile, const HeadBlocks& blocks, float scale, float cap,
                  WidenedUnits* widened) {
  const int head_dim = blocks.cache.head_dim;
  QueryUnits queries;
  queries.count = tile.count;
  queries.stride = padded_head_dim(head_dim) / 2;
  alignas(64) float scaled[kHeadDimMax];
  for (int q = 0; q < tile.count; ++q) {
    for (int d = 0; d < head_dim; d += kLanes) {
      const int count = head_dim - d < kLanes ? head_dim - d : kLanes;
      store(scaled + d, multiply(load_first(tile.queries[q] + d, count), broadcast(scale)));
    }
    for (int u = 0; u < queries.stride; u += kLanes) {
      const int left = queries.stride - u;
      store_first(queries.units + q * queries.stride + u,
                  units_at<WeightType::kBF16>(scaled, head_dim, u, 1.0F),
                  left < kLanes ? left : kLanes);
    }
  }
  const Products products(tile.count);
  std::int64_t split = tile.first_visible[0] / kAttentionSplit * kAttentionSplit;
  for (; split < tile.num_visible[tile.count - 1]; split += kAttentionSplit) {
    attend_split_bf16(products, tile, blocks, queries, split, cap, widened);
  }
  write_outputs(tile, head_dim);
}

inline bool all_finite(const float* values, int count) {
  F poison = zero();
  for (int i = 0; i < count; i += kLanes) {
    const int left = count - i;
    const F some = load_first(values + i, left < kLanes ? left : kLanes);
    poison = multiply_add(some, zero(), poison);
  }
  return sum_lanes(poison) == 0.0F;
}

// Weights are zero for tokens that a query does not see, but zero times an infinite or NaN value
// would reach its sums: a query whose output is not finite is computed again, alone.
template <class Tiles, class Row>
void attend_contained(QueryTile& tile, const HeadBlocks& blocks, float scale, float cap,
                      WidenedUnits* widened) {
  if (tile.count == 1) {
    attend_units<Row>(tile, blocks, scale, cap, widened);
    return;
  }
  attend_units<Tiles>(tile, blocks, scale, cap, widened);
  for (int q = 0; q < tile.count; ++q) {
    if (!all_finite(tile.outputs[q], blocks.cache.head_dim)) {
      QueryTile alone;
      alone.count = 1;
      alone.queries[0] = tile.queries[q];
      alone.outputs[0] = tile.outputs[q];
      alone.first_visible[0] = tile.first_visible[q];
      alone.num_visible[0] = tile.num_visible[q];
      attend_units<Row>(alone, blocks, scale, cap, widened);
    }
  }
}

template <class Tiles, class Row>
void attend_bf16(QueryTile& tile, const HeadBlocks& blocks, float scale, float cap) {
  attend_contained<Tiles, Row>(tile, blocks, scale, cap, nullptr);
}

template <class Tiles, class Row>
void attend_e4m3(QueryTile& tile, const HeadBlocks& blocks, float scale, float cap) {
  WidenedUnits widened;
  attend_contained<Tiles, Row>(tile, blocks, scale, cap, &widened);
}

}  // namespace lmtp::kernels::LMTP_KERNELS_ISA
