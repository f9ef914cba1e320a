// Attention over keys and values in bf16 or e4m3 on AMX tiles; a single query by vectors, to the
// same bits.
#pragma once

#include "amx_tiles.h"
#include "amx_vectors.h"
#include "kernel_attention.h"

namespace lmtp::kernels::LMTP_KERNELS_ISA {

static_assert(kUnitsPerBlock == kTileSize / 2 && kBlockSize == kTileSize && kLanes == kTileSize);

// Products::score_blocks_at<n> gives the scores of n blocks next to one another.
template <class Products>
inline void score_by_fours(const QueryUnits& queries, const SplitBlocks& blocks, float* scores) {
  int b = 0;
  for (; b + 4 <= blocks.count; b += 4) {
    Products::template score_blocks_at<4>(queries, blocks.keys + b,
                                          scores + blocks.first + b * kBlockSize);
  }
  for (; b < blocks.count; ++b) {
    Products::template score_blocks_at<1>(queries, blocks.keys + b,
                                          scores + blocks.first + b * kBlockSize);
  }
}

// Products::weigh_at<n> weighs n * 16 dimensions from `first` on.
template <class Products>
inline void weigh_by_fours(const float* weights, const SplitBlocks& blocks, float* sums) {
  const float* seen = weights + blocks.first / 2;
  int first = 0;
  for (; first + 4 * kTileSize <= blocks.width; first += 4 * kTileSize) {
    Products::template weigh_at<4>(seen, blocks, first, sums + first);
  }
  for (; first < blocks.width; first += kTileSize) {
    Products::template weigh_at<1>(seen, blocks, first, sums + first);
  }
}

// The scores of a tile of query units with those of kBlocks blocks. A macro because gcc 12's
// intrinsics are macros that put the text of a tile's number into the instruction.
#define LMTP_SCORE_STEP(query_tile, key_tile)                         \
  do {                                                                \
    _tile_loadd(query_tile, queries.units + row, stride);             \
    _tile_loadd(key_tile, keys[0] + row * kBlockSize, kTileStride);   \
    _tile_dpbf16ps(0, query_tile, key_tile);                          \
    if constexpr (kBlocks == 4) {                                     \
      _tile_loadd(key_tile, keys[1] + row * kBlockSize, kTileStride); \
      _tile_dpbf16ps(1, query_tile, key_tile);                        \
      _tile_loadd(key_tile, keys[2] + row * kBlockSize, kTileStride); \
      _tile_dpbf16ps(2, query_tile, key_tile);                        \
      _tile_loadd(key_tile, keys[3] + row * kBlockSize, kTileStride); \
      _tile_dpbf16ps(3, query_tile, key_tile);                        \
    }                                                                 \
  } while (false)

// A tile of queries or weights is as high as there are queries. Tiles 0 to 3: sums. 4: queries; 5:
// half as wide, queries or weights. 6: keys; 7: half as high, keys or values.
class TileProducts {
 public:
  explicit TileProducts(int count) : registers_(shapes_for(count)) {}

  void score(const QueryUnits& queries, const SplitBlocks& blocks,
             float (*scores)[kAttentionSplit]) const {
    show_to_tiles(queries.units);
    score_by_fours<TileProducts>(queries, blocks, scores[0]);
    show_to_tiles(scores);
  }

  void weigh(const float (*weights)[kAttentionSplit / 2], int, const SplitBlocks& blocks,
             float* sums) const {
    show_to_tiles(weights);
    weigh_by_fours<TileProducts>(weights[0], blocks, sums);
    show_to_tiles(sums);
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
    for (; row + kTileSize <= queries.stride; row += kTileSize) LMTP_SCORE_STEP(4, 6);
    if (row < queries.stride) LMTP_SCORE_STEP(5, 7);
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

 private:
  static constexpr int kScoreStride = kAttentionSplit * 4;
  static constexpr int kWeightStride = kAttentionSplit / 2 * 4;

  static TileShapes shapes_for(int count) {
    TileShapes shapes;
    for (int tile = 0; tile < 6; ++tile) shapes.rows[tile] = count;
    shapes.units[5] = kTileSize / 2;
    shapes.rows[7] = kTileSize / 2;
    return shapes;
  }

  TileRegisters registers_;
};
#undef LMTP_SCORE_STEP

// TileProducts for a single query, by vectors. REQUIRES: a tile of one query.
class RowProducts {
 public:
  explicit RowProducts(int) {}

  void score(const QueryUnits& queries, const SplitBlocks& blocks,
             float (*scores)[kAttentionSplit]) const {
    const FlushSubnormals flush;
    score_by_fours<RowProducts>(queries, blocks, scores[0]);
  }

  void weigh(const float (*weights)[kAttentionSplit / 2], int, const SplitBlocks& blocks,
             float* sums) const {
    const FlushSubnormals flush;
    weigh_by_fours<RowProducts>(weights[0], blocks, sums);
  }

  template <int kBlocks>
  [[gnu::noinline]] static void score_blocks_at(const QueryUnits& queries, const float* const* keys,
                                                float* to) {
    F sums[kBlocks];
    for (int i = 0; i < kBlocks; ++i) sums[i] = zero();
    for (int row = 0; row < queries.stride; row += kTileSize) {
      const int left = queries.stride - row;
      const auto at = [&](std::int64_t u, int i) { return keys[i] + (row + u) * kBlockSize; };
      add_bf16_tile<kBlocks>(queries.units + row, left < kTileSize ? left : kTileSize, false, at,
                             sums);
    }
    for (int i = 0; i < kBlocks; ++i) store(to + i * kBlockSize, sums[i]);
  }

  template <int kVectors>
  [[gnu::noinline]] static void weigh_at(const float* weights, const SplitBlocks& blocks, int first,
                                         float* to) {
    F sums[kVectors];
    for (int v = 0; v < kVectors; ++v) sums[v] = zero();
    for (int b = 0; b < blocks.count; ++b) {
      const float* values = blocks.values[b] + first;
      const auto at = [&](std::int64_t u, int v) { return values + u * blocks.width + v * kLanes; };
      add_bf16_tile<kVectors>(weights + b * kUnitsPerBlock, kUnitsPerBlock, false, at, sums);
    }
    for (int v = 0; v < kVectors; ++v) store(to + v * kLanes, sums[v]);
  }
};

inline void tile_attention(Stream& stream, const AttentionArgs& args) {
  paged_attention_with<TileProducts, RowProducts>(stream, args);
}

}  // namespace lmtp::kernels::LMTP_KERNELS_ISA
