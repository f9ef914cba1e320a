// The packed-panel linear: register tiles of rows x vectors, every accumulator one chain along k.
#pragma once

#include <utility>

#include "kernel_panels.h"
#include "kernel_units.h"
#include "kernels/backend.h"
#include "kernels/linear.h"

namespace lmtp::kernels::LMTP_KERNELS_ISA {

inline constexpr int kPanelVectors = kPanelColumns / kLanes;
// Rows of a register tile two vectors wide: accumulators, one broadcast a row pair, one weight.
inline constexpr int kTileRowsMax = kRegisters == 32 ? 12 : 6;
inline constexpr int kTileVectors = 2;
// GEMM: units whose products are computed between two calls of PrefetchCursor::step().
inline constexpr std::int64_t kUnitsPerStep = 4;

// GEMV: vectors across of a tile of so many rows, as registers allow: whole panels or a part of
// one.
constexpr int vectors_for(int rows) {
  if (kRegisters == 32) return rows == 1 ? 16 : rows <= 3 ? 8 : rows == 4 ? 6 : rows <= 6 ? 4 : 2;
  return rows == 1 ? 8 : rows <= 3 ? 4 : kFloatsPerLine / kLanes;
}

// GEMV: how many units ahead of the products a tile prefetches weights: 4 KiB, or 8 where they are
// most.
constexpr std::int64_t units_ahead(int vectors) {
  const int lines = vectors * kLanes / kFloatsPerLine;
  return lines >= 8 ? 8 : lines >= 4 ? 16 : 32;
}

// Units of x that one task interleaves.
inline constexpr std::int64_t kUnitsPerPart = 512;

// Where vector v of a tile starts: the panels of `weights` are panel_size floats apart.
constexpr std::int64_t vector_offset(int v, std::int64_t panel_size) {
  return (v / kPanelVectors) * panel_size + (v % kPanelVectors) * kLanes;
}

// Prefetches the weights of one unit and kVectors vectors, to L2: L1 waits for fewer lines at a
// time than a core needs of a fast memory.
template <int kVectors>
[[gnu::always_inline]] inline void prefetch(const float* weights, std::int64_t panel_size) {
  static_assert(kVectors * kLanes % kFloatsPerLine == 0);
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; v += kFloatsPerLine / kLanes) {
    __builtin_prefetch(weights + vector_offset(v, panel_size), 0, 2);
  }
}

// Vector v of the weights of one of a unit's two inputs, widened. `weights`: where a line begins.
template <WeightType kType>
[[gnu::always_inline]] inline F widened_weights(const float* weights, int v,
                                                std::int64_t panel_size, int input) {
  if constexpr (kType == WeightType::kF32AsF16) {
    constexpr int kLineVectors = kFloatsPerLine / kLanes;
    const int lane = v % kLineVectors * kLanes;
    const auto* halves =
        reinterpret_cast<const std::uint16_t*>(weights + vector_offset(v, panel_size) - lane) +
        input * kHalvesColumns + lane;
    return load_f16(halves);
  } else {
    const F pairs = load(weights + vector_offset(v, panel_size));
    return input == 0 ? lower_bf16(pairs) : upper_bf16(pairs);
  }
}

// sums[r][v] += a[r] * w[v] for one unit of two inputs. a is [2][kRows]. The products of all lower
// inputs go first, so that few registers hold factors.
template <WeightType kType, int kRows, int kVectors>
[[gnu::always_inline]] inline void add_widened(const float* a, const float* weights,
                                               std::int64_t panel_size,
                                               F (&sums)[kRows][kVectors]) {
  if constexpr (kRows < kVectors) {
    F lower[kRows];
    F upper[kRows];
    for (int r = 0; r < kRows; ++r) {
      lower[r] = broadcast(a[r]);
      upper[r] = broadcast(a[kRows + r]);
    }
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      const F first = widened_weights<kType>(weights, v, panel_size, 0);
      const F second = widened_weights<kType>(weights, v, panel_size, 1);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        sums[r][v] = multiply_add(lower[r], first, sums[r][v]);
        sums[r][v] = multiply_add(upper[r], second, sums[r][v]);
      }
    }
    return;
  }
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    F held[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      held[v] = widened_weights<kType>(weights, v, panel_size, half);
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const F input = broadcast(a[half * kRows + r]);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = settled(multiply_add(input, held[v], sums[r][v]));
      }
    }
  }
}

// sums[r][v] += a[u][r] * w[u][v] for units u in order. a is [count][kRows]. Whichever of the two
// factors is fewer stays in registers, so that nothing is spilled.
template <WeightType kType, int kRows, int kVectors>
[[gnu::always_inline]] inline void accumulate(const float* a, const float* weights,
                                              std::int64_t panel_size, std::int64_t count,
                                              F (&sums)[kRows][kVectors]) {
  constexpr bool kHoldsInputs = kRows < kVectors;
  // NOLINTBEGIN(bugprone-branch-clone): both are the same where the tile is square
  constexpr int kHeld = kHoldsInputs ? kRows : kVectors;
  constexpr int kPassing = kHoldsInputs ? kVectors : kRows;
  // NOLINTEND(bugprone-branch-clone)
  for (std::int64_t u = 0; u < count;
       ++u, a += kRows * kUnitFloats<kType>, weights += kPanelColumns) {
    if constexpr (kUnitFloats<kType> == 2) {
      add_widened<kType, kRows, kVectors>(a, weights, panel_size, sums);
      continue;
    }
    F held[kHeld];
#pragma GCC unroll 16
    for (int h = 0; h < kHeld; ++h) {
      held[h] = kHoldsInputs ? broadcast(a[h]) : load(weights + vector_offset(h, panel_size));
    }
#pragma GCC unroll 16
    for (int p = 0; p < kPassing; ++p) {
      const F passing =
          kHoldsInputs ? load(weights + vector_offset(p, panel_size)) : broadcast(a[p]);
#pragma GCC unroll 16
      for (int h = 0; h < kHeld; ++h) {
        F& sum = kHoldsInputs ? sums[h][p] : sums[p][h];
        sum = kHoldsInputs ? dot<kType>(held[h], passing, sum) : dot<kType>(passing, held[h], sum);
      }
    }
  }
}

// Scales, bias, activation, scale, residual; writes the columns [column, column + kLanes) that
// exist.
template <WeightType kType>
[[gnu::always_inline]] inline void finish(const LinearWork& work, std::int64_t row,
                                          std::int64_t column, F sum,
                                          const Activation& activation) {
  const LinearArgs& args = work.args;
  const std::int64_t left = args.weight.n - column;
  const int count = left < kLanes ? static_cast<int>(left) : kLanes;
  if (count <= 0) return;
  if constexpr (kType == WeightType::kInt8) {
    // Inputs were given as x + 128, which is one constant more a column.
    const F scale = multiply(broadcast(work.row_scales[row]), load(args.weight.scales + column));
    sum = multiply(int_difference(sum, args.weight.sums + column, 128), scale);
  }
  if (args.bias != nullptr) sum = add(sum, load_first(args.bias + column, count));
  sum = activate(activation, sum);
  if (args.scale != 1.0F) sum = multiply(sum, broadcast(args.scale));
  if (!args.residual.empty()) sum = add(sum, load_first(args.residual.row(row) + column, count));
  store_first(args.y.row(row) + column, sum, count);
}

// Sums that tasks leave in memory: [panel][row][kPanelColumns], the panels panel_size floats apart.
struct PanelSums {
  const float* data;
  std::int64_t panel_size;
};

// finish() for all rows and the panels [first, first + count), row by row, as y is stored. The
// activation is chosen once.
template <WeightType kType, Activation::Kind kActivation>
void finish_panels_with(const LinearWork& work, std::int64_t first, int count, PanelSums sums) {
  Activation activation = work.args.activation;
  activation.kind = kActivation;
  for (std::int64_t r = 0; r < work.args.x.rows; ++r) {
    for (int v = 0; v < count * kPanelVectors; ++v) {
      const float* sum = sums.data + r * kPanelColumns + vector_offset(v, sums.panel_size);
      finish<kType>(work, r, first * kPanelColumns + v * kLanes, load(sum), activation);
    }
  }
}

template <WeightType kType, int... kKinds>
inline void finish_panels(const LinearWork& work, std::int64_t first, int count, PanelSums sums,
                          std::integer_sequence<int, kKinds...> /*all*/) {
  using Finish = void (*)(const LinearWork&, std::int64_t, int, PanelSums);
  static constexpr Finish kOfKind[] = {
      finish_panels_with<kType, static_cast<Activation::Kind>(kKinds)>...};
  kOfKind[work.args.activation.kind](work, first, count, sums);
}

template <WeightType kType>
inline void finish_panels(const LinearWork& work, std::int64_t first, int count, PanelSums sums) {
  finish_panels<kType>(work, first, count, sums,
                       std::make_integer_sequence<int, Activation::kNumKinds>());
}

// GEMV: all units of the rows [0, kRows) times kVectors vectors.
template <WeightType kType, int kRows, int kVectors>
inline void gemv_tile(const LinearWork& work, const GemvWeights& from) {
  const std::int64_t num_units = work.args.weight.num_units();
  const std::int64_t panel_size = num_units * kPanelColumns;
  constexpr std::int64_t kUnitsAhead = units_ahead(kVectors);
  const float* inputs = work.units;
  F sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sums[r][v] = zero();
  }
  for (std::int64_t first = 0; first < num_units; first += kUnitsAhead) {
    const std::int64_t left = num_units - first;
    const float* weights = from.weights + first * kPanelColumns;
    const float* ahead = left > kUnitsAhead ? weights + kUnitsAhead * kPanelColumns : from.next;
    for (std::int64_t u = 0; u < (left < kUnitsAhead ? left : kUnitsAhead); ++u) {
      prefetch<kVectors>(ahead, panel_size);
      accumulate<kType, kRows, kVectors>(inputs, weights, panel_size, 1, sums);
      inputs += kRows * kUnitFloats<kType>;
      weights += kPanelColumns;
      ahead += kPanelColumns;
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      finish<kType>(work, r, from.column + v * kLanes, sums[r][v], work.args.activation);
    }
  }
}

// GEMV: the panels [first, first + count) of a task, up to kPanels side by side: one sum for each
// would wait for its own products.
template <WeightType kType, int kRows, int kPanels>
void gemv_panels(const LinearWork& work, const PanelTasks& tasks, int task, int first, int count) {
  constexpr int kWidth = vectors_for(kRows) < kPanelVectors ? vectors_for(kRows) : kPanelVectors;
  for (; count >= kPanels; count -= kPanels, first += kPanels) {
    for (int part = 0; part < kPanelColumns; part += kWidth * kLanes) {
      gemv_tile<kType, kRows, kPanels * kWidth>(work, tasks.gemv_weights(task, first, part));
    }
  }
  if constexpr (kPanels > 1) {
    gemv_panels<kType, kRows, kPanels / 2>(work, tasks, task, first, count);
  }
}

// GEMV, one tile of rows: one pass over the weights, several panels side by side.
template <WeightType kType, int kRows>
void gemv_linear(Stream& stream, const LinearWork& work) {
  constexpr int kVectors = vectors_for(kRows);
  constexpr int kPanels = kVectors > kPanelVectors ? kVectors / kPanelVectors : 1;
  const PanelTasks tasks(work, {kPanels, work.args.weight.num_units()},
                         stream.pool().num_threads());
  stream.pool().parallel_for(tasks.count(), [&](int task, int) {
    gemv_panels<kType, kRows, kPanels>(work, tasks, task, 0, tasks.num_panels(task));
  });
}

// GEMM: one block of units for one tile of rows and one panel. Partial sums rest in sums_at
// [kRows][kPanelColumns] as f32, which loses nothing: the chain is unbroken.
template <WeightType kType, int kRows>
void gemm_tile(const float* a, const float* panel, std::int64_t count,
               L2PrefetchCursor& caller_cursor, float* sums_at) {
  static_assert(!is_kept_narrow(kType));
  L2PrefetchCursor cursor = caller_cursor;  // in registers
  for (int column = 0; column < kPanelColumns; column += kTileVectors * kLanes) {
    F sums[kRows][kTileVectors];
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kTileVectors; ++v) {
        sums[r][v] = load(sums_at + r * kPanelColumns + column + v * kLanes);
      }
    }
    const float* inputs = a;
    const float* weights = panel + column;
    std::int64_t left = count;
    for (; left >= kUnitsPerStep; left -= kUnitsPerStep) {
      accumulate<kType, kRows, kTileVectors>(inputs, weights, 0, kUnitsPerStep, sums);
      inputs += kUnitsPerStep * kRows * kUnitFloats<kType>;
      weights += kUnitsPerStep * kPanelColumns;
      cursor.step();
    }
    accumulate<kType, kRows, kTileVectors>(inputs, weights, 0, left, sums);
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kTileVectors; ++v) {
        store(sums_at + r * kPanelColumns + column + v * kLanes, sums[r][v]);
      }
    }
  }
  caller_cursor = cursor;
}

// Rows in tiles of nearly equal height: tile t starts at row t * m / count.
struct RowTiles {
  std::int64_t m;
  int count;
  std::int64_t start(int tile) const { return m * tile / count; }
  int height(int tile) const { return static_cast<int>(start(tile + 1) - start(tile)); }
};

using GemvLinear = void (*)(Stream&, const LinearWork&);
using GemmTile = void (*)(const float*, const float*, std::int64_t, L2PrefetchCursor&, float*);

// The tiles of every height, by type.
template <WeightType kType, int... kRows>
struct TileTable {
  static constexpr GemvLinear kGemv[] = {nullptr, gemv_linear<kType, kRows>...};
  static constexpr GemmTile kGemm[] = {nullptr, gemm_tile<kType, kRows>...};
};
template <WeightType kType, bool kMany = kTileRowsMax == 12>
struct Tiles : TileTable<kType, 1, 2, 3, 4, 5, 6> {};
template <WeightType kType>
struct Tiles<kType, true> : TileTable<kType, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12> {};

// Some units of a panel as f32: [inputs][kPanelColumns].
template <WeightType kType>
inline void widen_units(const float* weights, std::int64_t count, float* to) {
  for (std::int64_t u = 0; u < count; ++u, weights += kPanelColumns) {
    for (int input = 0; input < 2; ++input, to += kPanelColumns) {
#pragma GCC unroll 16
      for (int v = 0; v < kPanelVectors; ++v) {
        store(to + v * kLanes, widened_weights<kType>(weights, v, 0, input));
      }
    }
  }
}

// GEMM: a few panels at a time, their units in blocks, all row tiles over each block. Of f32 that
// is kept in 16 bits each block is widened once, for all tiles.
template <WeightType kType>
inline void gemm_linear(Stream& stream, const LinearWork& work, float* sums_of_all, float* widened,
                        const RowTiles& tiles) {
  constexpr bool kWidens = is_kept_narrow(kType);
  constexpr WeightType kProducts = kWidens ? WeightType::kF32 : kType;
  constexpr std::int64_t kSteps = kWidens ? 2 : 1;  // of the tiles, a unit
  const LinearShape& shape = stream.backend().linear_shape;
  const BlockShape block{shape.block_panels, (shape.block_units + kSteps - 1) / kSteps};
  const PanelTasks tasks(work, block, stream.pool().num_threads());
  const std::int64_t num_units = work.args.weight.num_units();
  const std::int64_t sums_size = tiles.m * kPanelColumns;  // of a panel
  stream.pool().parallel_for(tasks.count(), [&](int task, int worker) {
    const int num_panels = tasks.num_panels(task);
    float* sums = sums_of_all + worker * block.panels * sums_size;
    __builtin_memset(sums, 0, sizeof(float) * static_cast<std::uint64_t>(num_panels * sums_size));
    for (std::int64_t first = 0; first < num_units; first += block.units) {
      const std::int64_t count = tasks.units_from(first);
      constexpr int kPasses = kPanelColumns / (kTileVectors * kLanes);
      L2PrefetchCursor cursor = tasks.prefetch_cursor(
          task, first, num_panels * tiles.count * kPasses * (kSteps * count / kUnitsPerStep));
      for (int p = 0; p < num_panels; ++p) {
        const float* weights = tasks.panel(task, p) + first * kPanelColumns;
        if constexpr (kWidens) {
          float* own = widened + worker * kSteps * block.units * kPanelColumns;
          widen_units<kType>(weights, count, own);
          weights = own;
        }
        for (int tile = 0; tile < tiles.count; ++tile) {
          const std::int64_t row = tiles.start(tile);
          const int height = tiles.height(tile);
          Tiles<kProducts>::kGemm[height](
              work.units + (row * num_units + first * height) * kUnitFloats<kType>, weights,
              kSteps * count, cursor, sums + p * sums_size + row * kPanelColumns);
        }
      }
    }
    finish_panels<kProducts>(work, tasks.first_panel(task), num_panels, {sums, sums_size});
  });
}

// x as units [tile][unit][kUnitFloats][height], so that a tile's rows come from one line of the
// cache.
template <WeightType kType>
inline void interleave_rows(Stream& stream, const LinearArgs& args, std::int64_t num_units,
                            const RowTiles& tiles, float* units, float* row_scales) {
  const std::int64_t k = args.weight.k;
  const auto num_parts = static_cast<int>((num_units + kUnitsPerPart - 1) / kUnitsPerPart);
  if constexpr (kType == WeightType::kInt8) {
    stream.pool().parallel_for(static_cast<int>(tiles.m), [&](int row, int) {
      row_scales[row] = row_scale(args.x.row(row), k);
    });
  }
  stream.pool().parallel_for(tiles.count * num_parts, [&](int task, int) {
    const int tile = task / num_parts;
    const std::int64_t first = task % num_parts * kUnitsPerPart;
    const std::int64_t end = first + kUnitsPerPart < num_units ? first + kUnitsPerPart : num_units;
    const std::int64_t row = tiles.start(tile);
    const int height = tiles.height(tile);
    float* to = units + row * num_units * kUnitFloats<kType>;
    float inverses[kTileRowsMax];
    for (int r = 0; r < height; ++r) inverses[r] = inverse_scale<kType>(row_scales, row + r);
    const auto units_of = [&](int r, std::int64_t at) {
      return units_at<kType>(args.x.row(row + r), k, at, inverses[r]);
    };
    if (height == 1) {
      for (std::int64_t at = first; at < end; at += kLanes) {
        const int count = end - at < kLanes ? static_cast<int>(end - at) : kLanes;
        const F some = units_of(0, at);
        if constexpr (kUnitFloats<kType> == 2) {
          float both[2 * kLanes];
          store(both, zip_lower(lower_bf16(some), upper_bf16(some)));
          store(both + kLanes, zip_upper(lower_bf16(some), upper_bf16(some)));
          __builtin_memcpy(to + 2 * at, both, 2 * sizeof(float) * static_cast<unsigned>(count));
        } else {
          store_first(to + at, some, count);
        }
      }
      return;
    }
    for (std::int64_t at = first; at < end; at += kLanes) {
      for (int upper = 0; upper < height; upper += kLanes) {
        const int count = height - upper < kLanes ? height - upper : kLanes;
        F some[kLanes];
        for (int r = 0; r < kLanes; ++r) some[r] = r < count ? units_of(upper + r, at) : zero();
        transpose(some);
        for (int i = 0; i < kLanes && at + i < end; ++i) {
          float* unit = to + (at + i) * height * kUnitFloats<kType> + upper;
          if constexpr (kUnitFloats<kType> == 2) {
            store_first(unit, lower_bf16(some[i]), count);
            store_first(unit + height, upper_bf16(some[i]), count);
          } else {
            store_first(unit, some[i], count);
          }
        }
      }
    }
  });
}

template <WeightType kType>
inline void linear_of(Stream& stream, const LinearArgs& args) {
  const std::int64_t m = args.x.rows;
  const auto* panels = static_cast<const float*>(args.weight.panels);
  constexpr bool kIsF32 = kType == WeightType::kF32 || is_kept_narrow(kType);
  constexpr WeightType kInputs = kIsF32 ? WeightType::kF32 : kType;
  if (kIsF32 && m == 1) {  // its units are x as it is
    Tiles<kType>::kGemv[1](stream, {args, panels, args.x.data, nullptr});
    return;
  }
  const RowTiles tiles{m, static_cast<int>((m + kTileRowsMax - 1) / kTileRowsMax)};
  const std::int64_t row_floats = args.weight.num_units() * kUnitFloats<kType>;
  const LinearShape& shape = stream.backend().linear_shape;
  const bool is_gemv = m <= shape.gemv_rows_max && m <= kTileRowsMax;
  const std::int64_t columns = is_gemv ? 0 : stream.pool().num_threads() * kPanelColumns;
  const std::int64_t num_widened = is_kept_narrow(kType) ? columns * (shape.block_units + 1) : 0;
  const std::int64_t num_sums = columns * shape.block_panels * m;
  auto* widened = static_cast<float*>(stream.scratch(
      sizeof(float) * static_cast<std::uint64_t>(num_widened + m * row_floats + num_sums + m)));
  float* units = widened + num_widened;
  float* sums = units + m * row_floats;
  float* row_scales = sums + num_sums;
  interleave_rows<kInputs>(stream, args, row_floats / kUnitFloats<kInputs>, tiles, units,
                           row_scales);
  const LinearWork work{args, panels, units, row_scales};
  if (is_gemv) {
    Tiles<kType>::kGemv[m](stream, work);
    return;
  }
  gemm_linear<kType>(stream, work, sums, widened, tiles);
}

inline void grouped_linear(Stream& stream, const LinearArgs& args);  // kernel_grouped.h

inline void linear(Stream& stream, const LinearArgs& args) {
  switch (args.weight.type) {
    case WeightType::kF32:
      linear_of<WeightType::kF32>(stream, args);
      return;
    case WeightType::kBF16:
      linear_of<WeightType::kBF16>(stream, args);
      return;
    case WeightType::kInt8:
      linear_of<WeightType::kInt8>(stream, args);
      return;
    case WeightType::kInt4:
    case WeightType::kWidened:
      grouped_linear(stream, args);
      return;
    case WeightType::kF32AsBF16:
      linear_of<WeightType::kF32AsBF16>(stream, args);
      return;
    case WeightType::kF32AsF16:
      linear_of<WeightType::kF32AsF16>(stream, args);
      return;
    case WeightType::kF16:
      return;  // refused by the op
  }
}

}  // namespace lmtp::kernels::LMTP_KERNELS_ISA
