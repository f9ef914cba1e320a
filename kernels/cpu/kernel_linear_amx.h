// The linear of bf16 and int8 weights on AMX tiles; f32 uses the kernels of AVX-512.
//
// A tile product adds 16 units to a sum: bf16 as two chains over the lower and the upper inputs of
// the units, then their sum (Intel's TDPBF16PS, subnormal numbers are zero); int8 exactly. For a
// single row tiles read memory too slowly: vectors do the same operations there, to the same bits.
#pragma once

#include "amx_tiles.h"
#include "amx_vectors.h"
#include "kernel_linear.h"

namespace lmtp::kernels::LMTP_KERNELS_ISA {

inline constexpr int kTileFloats = kTileSize * kTileSize;
// From row to row of a tile of weights, in bytes; a panel is two tiles wide.
inline constexpr int kPanelStride = kPanelColumns * 4;
static_assert(kPanelColumns == 2 * kTileSize);
// GEMM: panels and units of a block; a panel's part of 16 KB stays in the L1 cache while all rows
// pass over it.
inline constexpr int kBlockPanelsMax = 4;
inline constexpr BlockShape kTileBlock{kBlockPanelsMax, 128};
inline constexpr std::int64_t kTilesPerBlock = kTileBlock.units / kTileSize;
// GEMV (up to 16 rows): panels side by side, all of whose sums stay in tiles.
inline constexpr int kGemvPanels = 3;

// The sum of a kType product. A macro because gcc 12's intrinsics are macros that put the text of a
// tile's number into the instruction.
#define LMTP_TILE_PRODUCT(sum, inputs, weights) \
  do {                                          \
    if constexpr (kType == WeightType::kBF16) { \
      _tile_dpbf16ps(sum, inputs, weights);     \
    } else {                                    \
      _tile_dpbusd(sum, inputs, weights);       \
    }                                           \
  } while (false)

// The first `num_rowed` tiles, for sums and inputs, have `rows` rows; the others, for weights, 16.
inline TileShapes linear_tiles(int rows, int num_rowed) {
  TileShapes shapes;
  for (int tile = 0; tile < num_rowed; ++tile) shapes.rows[tile] = rows;
  return shapes;
}

// x as tiles [row tile][unit tile][16 rows][16 units], padded with zeros.
struct TiledInputs {
  const float* units;
  std::int64_t num_unit_tiles;

  const float* of(std::int64_t row_tile) const {
    return units + row_tile * num_unit_tiles * kTileFloats;
  }
};

// A panel's tiles [unit tile][16 units][32 columns]; the last, if it is not whole, is a padded
// copy.
struct PanelTiles {
  const float* whole;
  std::int64_t num_whole;
  const float* last;

  const float* at(std::int64_t tile) const {
    return tile < num_whole ? whole + tile * 2 * kTileFloats : last;
  }
};

// The tile of a panel that is not whole, filled up with zeros.
struct LastTile {
  alignas(64) float units[2 * kTileFloats];

  const float* fill(const float* panel, std::int64_t num_units) {
    const std::int64_t first = num_units / kTileSize * kTileSize;
    const auto count = static_cast<std::uint64_t>((num_units - first) * kPanelColumns);
    __builtin_memset(units, 0, sizeof(units));
    __builtin_memcpy(units, panel + first * kPanelColumns, count * sizeof(float));
    show_to_tiles(units);
    return units;
  }
};

// The panels that a task works on side by side: memory is faster for several streams than for one.
struct PanelGroup {
  std::int64_t first;
  int count;
  PanelTiles panels[kBlockPanelsMax];
  LastTile last[kBlockPanelsMax];

  PanelGroup(const LinearWork& work, const PanelTasks& tasks, int task)
      : first(tasks.first_panel(task)), count(tasks.num_panels(task)) {
    const std::int64_t num_units = work.args.weight.num_units();
    const std::int64_t num_whole = num_units / kTileSize;
    for (int p = 0; p < kBlockPanelsMax && p < count; ++p) {  // gcc 12 does not see the bound
      const float* whole = tasks.panel(task, p);
      const bool all = num_whole * kTileSize == num_units;
      panels[p] = {whole, num_whole, all ? nullptr : last[p].fill(whole, num_units)};
    }
  }
  PanelGroup(const PanelGroup&) = delete;
  PanelGroup& operator=(const PanelGroup&) = delete;
};

// Rows up to which int8 uses vectors, which read memory faster; integer sums are the same.
inline constexpr int kInt8VectorRowsMax = 2;

// All units of one row times kVectors vectors. Not inlined: no operation may leave the caller's
// FlushSubnormals.
template <int kVectors>
[[gnu::noinline]] void vector_tile(const float* inputs, const GemvWeights& from,
                                   std::int64_t num_units, float* sums_at) {
  const std::int64_t panel_size = num_units * kPanelColumns;
  F sums[kVectors];
  for (int v = 0; v < kVectors; ++v) sums[v] = zero();
  for (std::int64_t first = 0; first < num_units; first += kTileSize, inputs += kTileFloats) {
    const std::int64_t left = num_units - first;
    const float* weights = from.weights + first * kPanelColumns;
    const float* ahead = left > kTileSize ? weights + kTileSize * kPanelColumns : from.next;
    const auto at = [&](std::int64_t u, int v) {
      if (v == 0) prefetch<kVectors>(ahead + u * kPanelColumns, panel_size);
      return weights + u * kPanelColumns + vector_offset(v, panel_size);
    };
    // A tile's missing units count as zeros.
    add_bf16_tile<kVectors>(inputs, left < kTileSize ? left : kTileSize, left < kTileSize, at,
                            sums);
  }
  for (int v = 0; v < kVectors; ++v) store(sums_at + v * kLanes, sums[v]);
}

// One row times kVectors vectors of bf16 weights.
template <int kVectors>
inline void vector_columns(const LinearWork& work, const GemvWeights& from) {
  alignas(64) float sums[kVectors * kLanes];
  {
    const FlushSubnormals flush;
    vector_tile<kVectors>(work.units, from, work.args.weight.num_units(), sums);
  }
  for (int v = 0; v < kVectors; ++v) {
    finish<WeightType::kBF16>(work, 0, from.column + v * kLanes, load(sums + v * kLanes),
                              work.args.activation);
  }
}

inline void vector_linear(Stream& stream, const LinearWork& work) {
  constexpr int kPanels = 4;
  constexpr int kVectors = kPanels * kPanelVectors;
  const PanelTasks tasks(work, {kPanels, work.args.weight.num_units()},
                         stream.pool().num_threads());
  stream.pool().parallel_for(tasks.count(), [&](int task, int) {
    const int num_panels = tasks.num_panels(task);
    if (num_panels == kPanels) {
      vector_columns<kVectors>(work, tasks.gemv_weights(task, 0));
      return;
    }
    for (int p = 0; p < num_panels; ++p) {
      vector_columns<kPanelVectors>(work, tasks.gemv_weights(task, p));
    }
  });
}

// GEMV: unit tiles ahead that weights are prefetched.
inline constexpr std::int64_t kTilesAhead = 2;

// GEMV: one unit tile of one panel, whose sums are tiles `first` and `second`.
#define LMTP_GEMV_STEP(panel, first, second)           \
  do {                                                 \
    const float* weights = (panel).at(t);              \
    cursor.step();                                     \
    _tile_loadd(7, weights, kPanelStride);             \
    LMTP_TILE_PRODUCT(first, 6, 7);                    \
    cursor.step();                                     \
    _tile_loadd(7, weights + kTileSize, kPanelStride); \
    LMTP_TILE_PRODUCT(second, 6, 7);                   \
  } while (false)

// GEMV: up to 16 rows times kPanels panels, all units: sums [panel][16 rows][32 columns].
template <WeightType kType, int kPanels>
inline void gemv_tiles(const TiledInputs& x, const PanelTiles* panels, std::int64_t panel_size,
                       float* sums) {
  const std::int64_t num_left = panels[0].num_whole - kTilesAhead;
  PrefetchCursor<CacheLevel::kL1> cursor(panels[0].whole + kTilesAhead * 2 * kTileFloats,
                                         panel_size, kPanels, num_left * kTileSize,
                                         num_left * 2 * kPanels);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  for (std::int64_t t = 0; t < x.num_unit_tiles; ++t) {
    _tile_loadd(6, x.units + t * kTileFloats, kTileStride);
    LMTP_GEMV_STEP(panels[0], 0, 1);
    if constexpr (kPanels > 1) LMTP_GEMV_STEP(panels[1], 2, 3);
    if constexpr (kPanels > 2) LMTP_GEMV_STEP(panels[2], 4, 5);
  }
  _tile_stored(0, sums, kPanelStride);
  _tile_stored(1, sums + kTileSize, kPanelStride);
  if constexpr (kPanels > 1) {
    _tile_stored(2, sums + 2 * kTileFloats, kPanelStride);
    _tile_stored(3, sums + 2 * kTileFloats + kTileSize, kPanelStride);
  }
  if constexpr (kPanels > 2) {
    _tile_stored(4, sums + 4 * kTileFloats, kPanelStride);
    _tile_stored(5, sums + 4 * kTileFloats + kTileSize, kPanelStride);
  }
}
#undef LMTP_GEMV_STEP

// GEMM: 32 rows times one panel, adds `count` unit tiles to sums [32 rows][32 columns].
template <WeightType kType>
inline void gemm_tiles(const float* upper, const float* lower, const PanelTiles& panel,
                       std::int64_t first, std::int64_t count, L2PrefetchCursor& caller_cursor,
                       float* sums) {
  L2PrefetchCursor cursor = caller_cursor;  // in registers
  _tile_loadd(0, sums, kPanelStride);
  _tile_loadd(1, sums + kTileSize, kPanelStride);
  _tile_loadd(2, sums + 2 * kTileFloats, kPanelStride);
  _tile_loadd(3, sums + 2 * kTileFloats + kTileSize, kPanelStride);
  for (std::int64_t t = first; t < first + count; ++t) {
    const float* weights = panel.at(t);
    cursor.step();
    _tile_loadd(6, weights, kPanelStride);
    _tile_loadd(4, upper + t * kTileFloats, kTileStride);
    LMTP_TILE_PRODUCT(0, 4, 6);
    _tile_loadd(7, weights + kTileSize, kPanelStride);
    LMTP_TILE_PRODUCT(1, 4, 7);
    _tile_loadd(5, lower + t * kTileFloats, kTileStride);
    LMTP_TILE_PRODUCT(2, 5, 6);
    LMTP_TILE_PRODUCT(3, 5, 7);
  }
  _tile_stored(0, sums, kPanelStride);
  _tile_stored(1, sums + kTileSize, kPanelStride);
  _tile_stored(2, sums + 2 * kTileFloats, kPanelStride);
  _tile_stored(3, sums + 2 * kTileFloats + kTileSize, kPanelStride);
  caller_cursor = cursor;
}

template <WeightType kType>
inline void gemv_tile_linear(Stream& stream, const LinearWork& work, const TiledInputs& x) {
  const PanelTasks tasks(work, {kGemvPanels, work.args.weight.num_units()},
                         stream.pool().num_threads());
  const auto rows = static_cast<int>(work.args.x.rows);
  stream.pool().parallel_for(tasks.count(), [&](int task, int) {
    const TileRegisters registers(linear_tiles(rows, 7));
    const PanelGroup group(work, tasks, task);
    alignas(64) float sums[kGemvPanels * 2 * kTileFloats];
    (group.count == 1   ? gemv_tiles<kType, 1>
     : group.count == 2 ? gemv_tiles<kType, 2>
                        : gemv_tiles<kType, 3>)(x, group.panels, tasks.panel_size(), sums);
    finish_panels<kType>(work, group.first, group.count, {sums, 2 * kTileFloats});
  });
}

// GEMM: the units of a group of panels in blocks, all pairs of row tiles over each block.
template <WeightType kType>
inline void gemm_tile_linear(Stream& stream, const LinearWork& work, const TiledInputs& x,
                             float* sums_of_all) {
  const PanelTasks tasks(work, kTileBlock, stream.pool().num_threads());
  const std::int64_t m = work.args.x.rows;
  const std::int64_t num_pairs = (m + 2 * kTileSize - 1) / (2 * kTileSize);
  const std::int64_t panel_sums = num_pairs * 4 * kTileFloats;
  stream.pool().parallel_for(tasks.count(), [&](int task, int worker) {
    const TileRegisters registers(linear_tiles(kTileSize, 6));
    const PanelGroup group(work, tasks, task);
    float* sums = sums_of_all + worker * kBlockPanelsMax * panel_sums;
    __builtin_memset(sums, 0, sizeof(float) * static_cast<std::uint64_t>(group.count * panel_sums));
    show_to_tiles(sums);
    for (std::int64_t first = 0; first < x.num_unit_tiles; first += kTilesPerBlock) {
      const std::int64_t rest = x.num_unit_tiles - first;
      const std::int64_t count = rest < kTilesPerBlock ? rest : kTilesPerBlock;
      L2PrefetchCursor cursor =
          tasks.prefetch_cursor(task, first * kTileSize, group.count * num_pairs * count);
      for (int p = 0; p < group.count; ++p) {
        for (std::int64_t pair = 0; pair < num_pairs; ++pair) {
          gemm_tiles<kType>(x.of(2 * pair), x.of(2 * pair + 1), group.panels[p], first, count,
                            cursor, sums + p * panel_sums + pair * 4 * kTileFloats);
        }
      }
    }
    finish_panels<kType>(work, group.first, group.count, {sums, panel_sums});
  });
}

template <WeightType kType>
inline void fill_tiles(Stream& stream, const LinearArgs& args, std::int64_t num_rows, float* units,
                       float* row_scales) {
  const std::int64_t m = args.x.rows;
  const std::int64_t k = args.weight.k;
  const std::int64_t num_unit_tiles = (args.weight.num_units() + kTileSize - 1) / kTileSize;
  stream.pool().parallel_for(static_cast<int>(num_rows), [&](int row, int) {
    float* to =
        units + row / kTileSize * num_unit_tiles * kTileFloats + row % kTileSize * kTileSize;
    if (row >= m) {
      for (std::int64_t t = 0; t < num_unit_tiles; ++t) store(to + t * kTileFloats, zero());
      return;
    }
    const float* from = args.x.row(row);
    if constexpr (kType == WeightType::kInt8) row_scales[row] = row_scale(from, k);
    const float inverse = inverse_scale<kType>(row_scales, row);
    for (std::int64_t t = 0; t < num_unit_tiles; ++t) {
      store(to + t * kTileFloats, units_at<kType>(from, k, t * kTileSize, inverse));
    }
  });
}

template <WeightType kType>
inline void tile_linear_of(Stream& stream, const LinearArgs& args) {
  static_assert(kLanes == kTileSize);
  const std::int64_t m = args.x.rows;
  const bool is_gemv = m <= kTileSize;
  const std::int64_t num_rows =
      is_gemv ? m : (m + 2 * kTileSize - 1) / (2 * kTileSize) * 2 * kTileSize;
  const std::int64_t num_unit_tiles = (args.weight.num_units() + kTileSize - 1) / kTileSize;
  const std::int64_t num_row_tiles = (num_rows + kTileSize - 1) / kTileSize;
  const std::int64_t num_inputs = num_row_tiles * num_unit_tiles * kTileFloats;
  const std::int64_t num_sums =
      is_gemv ? 0 : stream.pool().num_threads() * num_rows * kBlockPanelsMax * kPanelColumns;
  auto* units = static_cast<float*>(
      stream.scratch(sizeof(float) * static_cast<std::uint64_t>(num_inputs + num_sums + m)));
  float* sums = units + num_inputs;
  float* row_scales = sums + num_sums;
  fill_tiles<kType>(stream, args, num_rows, units, row_scales);
  const LinearWork work{args, static_cast<const float*>(args.weight.panels), units, row_scales};
  const TiledInputs x{units, num_unit_tiles};
  if (kType == WeightType::kBF16 && m == 1) {
    vector_linear(stream, work);
  } else if (is_gemv) {
    gemv_tile_linear<kType>(stream, work, x);
  } else {
    gemm_tile_linear<kType>(stream, work, x, sums);
  }
}

#undef LMTP_TILE_PRODUCT

inline void tile_linear(Stream& stream, const LinearArgs& args) {
  const WeightType type = args.weight.type;
  if (type == WeightType::kF32 || is_kept_narrow(type) || is_grouped(type) ||
      (type == WeightType::kInt8 && args.x.rows <= kInt8VectorRowsMax)) {
    LMTP_KERNELS_ISA::linear(stream, args);
  } else if (type == WeightType::kBF16) {
    tile_linear_of<WeightType::kBF16>(stream, args);
  } else {
    tile_linear_of<WeightType::kInt8>(stream, args);
  }
}

}  // namespace lmtp::kernels::LMTP_KERNELS_ISA
