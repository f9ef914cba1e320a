// Attention over keys and values in f16: widened split by split to what a cache of f32 would hold,
// and computed as that.
#pragma once

#include "kernel_attention_f32.h"

namespace lmtp::kernels::LMTP_KERNELS_ISA {

// Rows of `width` units of two f16. Row r becomes the rows 2r and 2r + 1 of f32.
inline void widen_f16_rows(const float* from, int rows, int width, float* to) {
  for (int row = 0; row < rows; ++row, from += width, to += 2 * width) {
    for (int i = 0; i < width; i += kLanes) {
      const F units = load(from + i);
      store(to + i, lower_f16(units));
      store(to + width + i, upper_f16(units));
    }
  }
}

// REQUIRES: heads of at most kDimMax, padded.
template <int kDimMax>
[[gnu::noinline]] void attend_widened_f16(QueryTile& tile, const HeadBlocks& blocks, float scale,
                                          float cap) {
  constexpr int kBlocks = kAttentionSplit / kBlockSize;
  static constexpr std::int32_t kInOrder[kBlocks] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                     8, 9, 10, 11, 12, 13, 14, 15};
  alignas(64) float keys[kAttentionSplit * kDimMax];
  alignas(64) float values[kAttentionSplit * kDimMax];
  const KvLayer& cache = blocks.cache;
  const int width = padded_head_dim(cache.head_dim);
  const KvLayer wide{.keys = keys,
                     .values = values,
                     .num_blocks = kBlocks,
                     .num_kv_heads = 1,
                     .head_dim = cache.head_dim};
  std::int64_t split = tile.first_visible[0] / kAttentionSplit * kAttentionSplit;
  for (; split < tile.num_visible[tile.count - 1]; split += kAttentionSplit) {
    const std::int64_t first = split / kBlockSize;
    const std::int64_t end = visible_in(tile, tile.count - 1, split).end;
    for (std::int64_t b = visible_in(tile, 0, split).begin / kBlockSize; b * kBlockSize < end;
         ++b) {
      widen_f16_rows(blocks.keys(first + b), cache.key_rows(), kBlockSize,
                     keys + b * wide.block_size());
      widen_f16_rows(blocks.values(first + b), cache.value_rows(), width,
                     values + b * wide.block_size());
    }
    const HeadBlocks widened{.cache = wide,
                             .table = kInOrder,
                             .head = 0,
                             .first = first,
                             .begin = first,
                             .end = first + kBlocks};
    TileSplit(tile, widened, split).attend(scale, cap);
  }
  write_outputs(tile, cache.head_dim);
}

inline void attend_f16(QueryTile& tile, const HeadBlocks& blocks, float scale, float cap) {
  constexpr int kUsualDim = 128;  // a quarter of the stack
  const bool is_usual = padded_head_dim(blocks.cache.head_dim) <= kUsualDim;
  (is_usual ? attend_widened_f16<kUsualDim> : attend_widened_f16<kHeadDimMax>)(tile, blocks, scale,
                                                                               cap);
}

}  // namespace lmtp::kernels::LMTP_KERNELS_ISA
