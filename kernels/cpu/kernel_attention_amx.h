// Attention over keys and values in bf16 on AMX tiles; a single query goes by vectors to the same
// bits.
#pragma once

#include "amx_tiles.h"
#include "amx_vectors.h"
#include "kernel_attention.h"

namespace lmtp::kernels::LMTP_KERNELS_ISA {

// A tile of queries or weights is as high as there are queries. Tiles 0 to 3: sums. 4: queries; 5:
// half as wide, queries or weights. 6: keys; 7: half as high, keys or values.
class TileProducts {
 public:
  explicit TileProducts(int count) : registers_(shapes_for(count)) {}

  void score(const QueryUnits& queries, const SplitBlocks& blocks,
             float (*scores)[kAttentionSplit]) const {
    show_to_tiles(queries.units);
    int b = 0;
    for (; b + 4 <= blocks.count; b += 4) {
      score_blocks_at<4>(queries, blocks.keys + b, scores[0] + blocks.first + b * kBlockSize);
    }
    for (; b < blocks.count; ++b) {
      score_blocks_at<1>(queries, blocks.keys + b, scores[0] + blocks.first + b * kBlockSize);
    }
    show_to_tiles(scores);
  }

  void weigh(const float (*weights)[kAttentionSplit / 2], int, const SplitBlocks& blocks,
             float* sums) const {
    show_to_tiles(weights);
    int first = 0;
    for (; first + 4 * kTileSize <= blocks.width; first += 4 * kTileSize) {
      weigh_at<4>(weights[0] + blocks.first / 2, blocks, first, sums + first);
    }
    for (; first < blocks.width; first += kTileSize) {
      weigh_at<1>(weights[0] + blocks.first / 2, blocks, first, sums + first);
    }
    show_to_tiles(sums);
  }

 private:
  static constexpr int kHalf = kTileSize / 2;
  static_assert(kUnitsPerBlock == kHalf && kBlockSize == kTileSize);
  static constexpr int kScoreStride = kAttentionSplit * 4;
  static constexpr int kWeightStride = kAttentionSplit / 2 * 4;

  static TileShapes shapes_for(int count) {
    TileShapes shapes;
    for (int tile = 0; tile < 6; ++tile) {
      shapes.rows[tile] = count;
    }
    shapes.units[5] = kHalf;
    shapes.rows[7] = kHalf;
    return shapes;
  }

  // Scores of kBlocks blocks, next to one another from `to` on.
  template <int kBlocks>
  static void score_blocks_at(const QueryUnits& queries, const float* const* keys, float* to) {
    _tile_zero(0);
    if constexpr (kBlocks == 4) {
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
    }
    const int stride = queries.stride * 4;
    int row = 0;
    for (; row + kTileSize <= queries.stride; row += kTileSize) {
      _tile_loadd(4, queries.units + row, stride);
      _tile_loadd(6, keys[0] + row * kBlockSize, kTileStride);
      _tile_dpbf16ps(0, 4, 6);
      if constexpr (kBlocks == 4) {
        _tile_loadd(6, keys[1] + row * kBlockSize, kTileStride);
        _tile_dpbf16ps(1, 4, 6);
        _tile_loadd(6, keys[2] + row * kBlockSize, kTileStride);
        _tile_dpbf16ps(2, 4, 6);
        _tile_loadd(6, keys[3] + row * kBlockSize, kTileStride);
        _tile_dpbf16ps(3, 4, 6);
      }
    }
    if (row < queries.stride) {
      _tile_loadd(5, queries.units + row, stride);
      _tile_loadd(7, keys[0] + row * kBlockSize, kTileStride);
      _tile_dpbf16ps(0, 5, 7);
      if constexpr (kBlocks == 4) {
        _tile_loadd(7, keys[1] + row * kBlockSize, kTileStride);
        _tile_dpbf16ps(1, 5, 7);
        _tile_loadd(7, keys[2] + row * kBlockSize, kTileStride);
        _tile_dpbf16ps(2, 5, 7);
        _tile_loadd(7, keys[3] + row * kBlockSize, kTileStride);
        _tile_dpbf16ps(3, 5, 7);
      }
    }
    _tile_stored(0, to, kScoreStride);
    if constexpr (kBlocks == 4) {
      _tile_stored(1, to + kBlockSize, kScoreStride);
      _tile_stored(2, to + 2 * kBlockSize, kScoreStride);
      _tile_stored(3, to + 3 * kBlockSize, kScoreStride);
    }
  }

  // kGroups * 16 dimensions from `first` on.
  template <int kGroups>
  static void weigh_at(const float* weights, const SplitBlocks& blocks, int first, float* to) {
    const int stride = blocks.width * 4;
    _tile_zero(0);
    if constexpr (kGroups == 4) {
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
    }
    for (int b = 0; b < blocks.count; ++b) {
      const float* values = blocks.values[b] + first;
      _tile_loadd(5, weights + b * kUnitsPerBlock, kWeightStride);
      _tile_loadd(7, values, stride);
      _tile_dpbf16ps(0, 5, 7);
      if constexpr (kGroups == 4) {
        _tile_loadd(7, values + kTileSize, stride);
        _tile_dpbf16ps(1, 5, 7);
        _tile_loadd(7, values + 2 * kTileSize, stride);
        _tile_dpbf16ps(2, 5, 7);
        _tile_loadd(7, values + 3 * kTileSize, stride);
        _tile_dpbf16ps(3, 5, 7);
      }
    }
    _tile_stored(0, to, stride);
    if constexpr (kGroups == 4) {
      _tile_stored(1, to + kTileSize, stride);
      _tile_stored(2, to + 2 * kTileSize, stride);
      _tile_stored(3, to + 3 * kTileSize, stride);
    }
  }

  TileRegisters registers_;
};

// The same for a single query by vectors. REQUIRES: tiles of one.
class RowProducts {
 public:
  explicit RowProducts(int) {}

  void score(const QueryUnits& queries, const SplitBlocks& blocks,
             float (*scores)[kAttentionSplit]) const {
    const FlushSubnormals flush;
    int b = 0;
    for (; b + 4 <= blocks.count; b += 4) {
      score_blocks_at<4>(queries, blocks.keys + b, scores[0] + blocks.first + b * kBlockSize);
    }
    for (; b < blocks.count; ++b) {
      score_blocks_at<1>(queries, blocks.keys + b, scores[0] + blocks.first + b * kBlockSize);
    }
  }

  void weigh(const float (*weights)[kAttentionSplit / 2], int, const SplitBlocks& blocks,
             float* sums) const {
    const FlushSubnormals flush;
    int first = 0;
    for (; first + 4 * kLanes <= blocks.width; first += 4 * kLanes) {
      weigh_at<4>(weights[0] + blocks.first / 2, blocks, first, sums + first);
    }
    for (; first < blocks.width; first += kLanes) {
      weigh_at<1>(weights[0] + blocks.first / 2, blocks, first, sums + first);
    }
  }

 private:
  static_assert(kLanes == kBlockSize);

  template <int kBlocks>
  [[gnu::noinline]] static void score_blocks_at(const QueryUnits& queries, const float* const* keys,
                                                float* to) {
    F sums[kBlocks];
    for (int i = 0; i < kBlocks; ++i) {
      sums[i] = zero();
    }
    for (int row = 0; row < queries.stride; row += kTileSize) {
      const int left = queries.stride - row;
      const auto at = [&](std::int64_t u, int i) { return keys[i] + (row + u) * kBlockSize; };
      add_bf16_tile<kBlocks>(queries.units + row, left < kTileSize ? left : kTileSize, false, at,
                             sums);
    }
    for (int i = 0; i < kBlocks; ++i) {
      store(to + i * kBlockSize, sums[i]);
    }
  }

  template <int kVectors>
  [[gnu::noinline]] static void weigh_at(const float* weights, const SplitBlocks& blocks, int first,
                                         float* to) {
    F sums[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      sums[v] = zero();
    }
    for (int b = 0; b < blocks.count; ++b) {
      const float* values = blocks.values[b] + first;
      const auto at = [&](std::int64_t u, int v) { return values + u * blocks.width + v * kLanes; };
      add_bf16_tile<kVectors>(weights + b * kUnitsPerBlock, kUnitsPerBlock, false, at, sums);
    }
    for (int v = 0; v < kVectors; ++v) {
      store(to + v * kLanes, sums[v]);
    }
  }
};

inline void tile_attention(Stream& stream, const AttentionArgs& args) {
  paged_attention_with(stream, args, attend_contained<TileProducts, RowProducts>);
}

}  // namespace lmtp::kernels::LMTP_KERNELS_ISA
