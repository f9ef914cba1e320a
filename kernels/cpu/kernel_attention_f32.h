// Attention over keys and values in f32, whose queries go by vectors.
#pragma once

#include "kernel_attention_tile.h"

namespace lmtp::kernels::LMTP_KERNELS_ISA {

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
    score_blocks<WeightType::kF32, kQueries, kBlocks>(tile.queries, keys, head_dim, scale, scores,
                                                      at);
  }
  for (; at < end; at += kBlockSize) {
    keys[0] = blocks.keys((split + at) / kBlockSize);
    score_blocks<WeightType::kF32, kQueries, 1>(tile.queries, keys, head_dim, scale, scores, at);
  }
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

// What a tile's queries see of one split.
template <int kQueries>
struct SplitView {
  std::int64_t begin[kQueries];
  std::int64_t end[kQueries];
  // What all of them see; empty where common_begin >= common_end.
  std::int64_t common_begin = 0;
  std::int64_t common_end = kAttentionSplit;

  SplitView(const QueryTile& tile, std::int64_t split) {
    for (int q = 0; q < kQueries; ++q) {
      const Visible visible = visible_in(tile, q, split);
      begin[q] = visible.begin;
      end[q] = visible.end;
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
void attend_f32(QueryTile& tile, const HeadBlocks& blocks, float scale, float cap) {
  std::int64_t split = tile.first_visible[0] / kAttentionSplit * kAttentionSplit;
  for (; split < tile.num_visible[kQueries - 1]; split += kAttentionSplit) {
    attend_split<kQueries>(tile, blocks, split, scale, cap);
  }
  write_outputs(tile, blocks.cache.head_dim);
}

inline constexpr Attend kAttendsF32[] = {nullptr,
                                         attend_f32<1>,
                                         attend_f32<2>,
                                         attend_f32<3>,
                                         attend_f32<side_by_side(4)>,
                                         attend_f32<side_by_side(5)>,
                                         attend_f32<side_by_side(6)>};

}  // namespace lmtp::kernels::LMTP_KERNELS_ISA
