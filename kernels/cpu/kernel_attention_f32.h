// Attention over keys and values in f32, by vectors.
#pragma once

#include "kernel_attention_tile.h"

namespace lmtp::kernels::LMTP_KERNELS_ISA {

// A tile's queries go in groups of kQueriesMax, whose sums fit the registers. The groups take each
// chunk of tokens in turn, so that all but the first find its keys and values in the L1 cache.
inline constexpr std::int64_t kChunkTokens = 64;
inline constexpr int kGroupedQueriesMax = 3 * kQueriesMax;
static_assert(kGroupedQueriesMax <= kTileQueriesMax && kAttentionSplit % kChunkTokens == 0);

// Scores of `tokens` of a split, kBlocks blocks at a time; the rest is left in `tokens`.
template <int kQueries, int kBlocks>
inline void score_by(const float* const* queries, const HeadBlocks& blocks, std::int64_t split,
                     Visible& tokens, float scale, float (*scores)[kAttentionSplit]) {
  const float* keys[kBlocks];
  const float* ahead[kBlocks];
  std::int64_t& at = tokens.begin;
  for (; at + (kBlocks - 1) * kBlockSize < tokens.end; at += kBlocks * kBlockSize) {
    for (int i = 0; i < kBlocks; ++i) {
      const std::int64_t block = (split + at) / kBlockSize + i;
      keys[i] = blocks.keys(block);
      ahead[i] = blocks.behind_keys(block);
    }
    score_blocks<WeightType::kF32, kQueries, kBlocks>(queries, keys, ahead, blocks.cache.head_dim,
                                                      scale, scores, at);
  }
}

// Scores of `tokens`, from whole blocks. REQUIRES: tokens.begin is a multiple of kBlockSize.
template <int kQueries>
void score_group(const float* const* queries, const HeadBlocks& blocks, std::int64_t split,
                 Visible tokens, float scale, float (*scores)[kAttentionSplit]) {
  constexpr int kMany = score_blocks_for(kQueries);
  constexpr int kFew = kMany < kChunkTokens / kBlockSize ? kMany : kChunkTokens / kBlockSize;
  score_by<kQueries, kMany>(queries, blocks, split, tokens, scale, scores);
  score_by<kQueries, kFew>(queries, blocks, split, tokens, scale, scores);
  score_by<kQueries, 1>(queries, blocks, split, tokens, scale, scores);
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
    for (int v = 0; v < kVectors; ++v) sums[q][v] = load(sums_at[q] + first + v * kLanes);
  }
  for (std::int64_t t = from; t < to;) {
    const std::int64_t token = split + t;
    const float* values = blocks.values(token / kBlockSize) + first;
    const float* ahead = blocks.behind_values(token / kBlockSize) + first;
    const std::int64_t block_end = t - token % kBlockSize + kBlockSize;
    const std::int64_t end = block_end < to ? block_end : to;
    values += token % kBlockSize * row;
    for (; t < end; ++t, values += row, ahead += row) {
      prefetch_vectors<kVectors>(ahead);
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
    for (int v = 0; v < kVectors; ++v) store(sums_at[q] + first + v * kLanes, sums[q][v]);
  }
}

template <int kQueries>
inline void weigh_all_values(const HeadBlocks& blocks, std::int64_t split, Visible tokens,
                             const float (*weights)[kAttentionSplit], float (*sums)[kHeadDimMax]) {
  if (tokens.begin >= tokens.end) return;
  const int width = padded_head_dim(blocks.cache.head_dim);
  int first = 0;
  for (; first + kValueVectors * kLanes <= width; first += kValueVectors * kLanes) {
    weigh_values<kQueries, kValueVectors>(blocks, split, tokens.begin, tokens.end, first, weights,
                                          sums);
  }
  with_vectors((width - first) / kLanes, [&]<int kVectors>() {
    weigh_values<kQueries, kVectors>(blocks, split, tokens.begin, tokens.end, first, weights, sums);
  });
}

// The intersection; empty where begin >= end.
inline Visible common_of(Visible a, Visible b) {
  return {a.begin < b.begin ? b.begin : a.begin, a.end < b.end ? a.end : b.end};
}

// Adds a chunk's weighted values to the sums of each query, of the tokens that it sees. A query's
// chain is in token order whether or not loads are shared.
template <int kQueries>
void weigh_group(const Visible* seen, const HeadBlocks& blocks, std::int64_t split, Visible chunk,
                 const float (*weights)[kAttentionSplit], float (*sums)[kHeadDimMax]) {
  Visible common = chunk;
  for (int q = 0; q < kQueries; ++q) common = common_of(common, seen[q]);
  const bool shared = common.begin < common.end;
  for (int q = 0; q < kQueries; ++q) {
    Visible own = common_of(chunk, seen[q]);
    own.end = shared ? common.begin : own.end;
    weigh_all_values<1>(blocks, split, own, weights + q, sums + q);
  }
  if (!shared) return;
  weigh_all_values<kQueries>(blocks, split, common, weights, sums);
  for (int q = 0; q < kQueries; ++q) {
    const Visible own = {common.end, common_of(chunk, seen[q]).end};
    weigh_all_values<1>(blocks, split, own, weights + q, sums + q);
  }
}

struct GroupKernels {
  void (*score)(const float* const*, const HeadBlocks&, std::int64_t, Visible, float,
                float (*)[kAttentionSplit]);
  void (*weigh)(const Visible*, const HeadBlocks&, std::int64_t, Visible,
                const float (*)[kAttentionSplit], float (*)[kHeadDimMax]);
};
template <int kQueries>
inline constexpr GroupKernels kKernelsOf = {score_group<kQueries>, weigh_group<kQueries>};
inline constexpr GroupKernels kGroupKernels[] = {{},
                                                 kKernelsOf<1>,
                                                 kKernelsOf<2>,
                                                 kKernelsOf<3>,
                                                 kKernelsOf<side_by_side(4)>,
                                                 kKernelsOf<side_by_side(5)>,
                                                 kKernelsOf<side_by_side(6)>};

// One split of a tile's queries.
class TileSplit {
 public:
  TileSplit(QueryTile& tile, const HeadBlocks& blocks, std::int64_t split)
      : tile_(tile), blocks_(blocks), split_(split) {
    for (int q = 0; q < tile.count; ++q) seen_[q] = visible_in(tile, q, split);
  }

  // Merges it into the tile's earlier splits.
  void attend(float scale, float cap) {
    by_chunks([&](const GroupKernels& group, int q, Visible tokens) {
      group.score(tile_.queries + q, blocks_, split_, tokens, scale, scores_ + q);
    });
    const int width = padded_head_dim(blocks_.cache.head_dim);
    float maxima[kGroupedQueriesMax] = {};
    float totals[kGroupedQueriesMax] = {};
    for (int q = 0; q < tile_.count; ++q) {
      const Visible seen = seen_[q];
      if (seen.begin == seen.end) continue;
      if (cap > 0.0F) cap_scores(scores_[q], seen.begin / kBlockSize * kBlockSize, seen.end, cap);
      soften(scores_[q], seen.begin, seen.end, &maxima[q], &totals[q]);
      __builtin_memset(sums_[q], 0, sizeof(float) * static_cast<unsigned>(width));
    }
    by_chunks([&](const GroupKernels& group, int q, Visible tokens) {
      group.weigh(seen_ + q, blocks_, split_, tokens, scores_ + q, sums_ + q);
    });
    for (int q = 0; q < tile_.count; ++q) {
      if (seen_[q].begin < seen_[q].end) merge(tile_, q, width, maxima[q], totals[q], sums_[q]);
    }
  }

 private:
  // Tokens of whole blocks that queries [first, first + count) see some of.
  Visible seen_by(int first, int count) const {
    return {seen_[first].begin / kBlockSize * kBlockSize, seen_[first + count - 1].end};
  }

  // work(kernels, first query, tokens) for each group, chunk by chunk; the whole split at once for
  // a single group.
  template <class Work>
  void by_chunks(const Work& work) const {
    const Visible all = seen_by(0, tile_.count);
    const std::int64_t step = tile_.count <= kQueriesMax ? kAttentionSplit : kChunkTokens;
    for (std::int64_t at = all.begin / step * step; at < all.end; at += step) {
      for (int q = 0; q < tile_.count; q += kQueriesMax) {
        const int count = tile_.count - q < kQueriesMax ? tile_.count - q : kQueriesMax;
        const Visible tokens = common_of({at, at + step}, seen_by(q, count));
        if (tokens.begin < tokens.end) work(kGroupKernels[count], q, tokens);
      }
    }
  }

  QueryTile& tile_;
  const HeadBlocks& blocks_;
  std::int64_t split_;
  Visible seen_[kGroupedQueriesMax] = {};
  alignas(64) float scores_[kGroupedQueriesMax][kAttentionSplit];
  alignas(64) float sums_[kGroupedQueriesMax][kHeadDimMax];
};

inline void attend_f32(QueryTile& tile, const HeadBlocks& blocks, float scale, float cap) {
  std::int64_t split = tile.first_visible[0] / kAttentionSplit * kAttentionSplit;
  for (; split < tile.num_visible[tile.count - 1]; split += kAttentionSplit) {
    TileSplit(tile, blocks, split).attend(scale, cap);
  }
  write_outputs(tile, blocks.cache.head_dim);
}

}  // namespace lmtp::kernels::LMTP_KERNELS_ISA
