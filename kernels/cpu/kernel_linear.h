// The packed-panel linear: register tiles of rows x vectors, every accumulator one chain along k.
#pragma once

#include "kernels/linear.h"

namespace lmtp::kernels::LMTP_KERNELS_ISA {

inline constexpr int kPanelVectors = kPanelColumns / kLanes;
// Rows of a register tile two vectors wide: accumulators, one broadcast a row pair, one weight.
inline constexpr int kTileRowsMax = kRegisters == 32 ? 12 : 6;
inline constexpr int kTileVectors = 2;
// Inputs between two visits to the accumulators in memory: a panel's part stays in the L1/L2 cache
// while all rows pass over it.
inline constexpr std::int64_t kInputsPerBlock = 512;

// Vectors across (whole panels, or a part of one) for a tile of so many rows, within the registers.
constexpr int vectors_for(int rows) {
  if constexpr (kRegisters == 32) {
    return rows <= 3 ? 8 : rows <= 6 ? 4 : 2;
  }
  return rows <= 1 ? 8 : rows <= 3 ? 4 : 2;
}

// Where vector v of a tile starts: the panels of `weights` are panel_size floats apart.
constexpr std::int64_t vector_offset(int v, std::int64_t panel_size) {
  return (v / kPanelVectors) * panel_size + (v % kPanelVectors) * kLanes;
}

// sums[r][v] += a[k][r] * w[k][v] for k in order. a is [count][kRows]. Whichever of the two factors
// is fewer stays in registers, so that nothing is spilled.
template <int kRows, int kVectors>
[[gnu::always_inline]] inline void accumulate(const float* a, const float* weights,
                                              std::int64_t panel_size, std::int64_t count,
                                              F (&sums)[kRows][kVectors]) {
  // NOLINTBEGIN(bugprone-branch-clone): both are the same where the tile is square
  constexpr int kHeld = kRows < kVectors ? kRows : kVectors;
  constexpr int kPassing = kRows < kVectors ? kVectors : kRows;
  // NOLINTEND(bugprone-branch-clone)
  for (std::int64_t k = 0; k < count; ++k, a += kRows, weights += kPanelColumns) {
    F held[kHeld];
#pragma GCC unroll 16
    for (int h = 0; h < kHeld; ++h) {
      held[h] = kRows < kVectors ? broadcast(a[h]) : load(weights + vector_offset(h, panel_size));
    }
#pragma GCC unroll 16
    for (int p = 0; p < kPassing; ++p) {
      const F passing =
          kRows < kVectors ? load(weights + vector_offset(p, panel_size)) : broadcast(a[p]);
#pragma GCC unroll 16
      for (int h = 0; h < kHeld; ++h) {
        F& sum = kRows < kVectors ? sums[h][p] : sums[p][h];
        sum = multiply_add(held[h], passing, sum);
      }
    }
  }
}

// Bias, activation, residual; writes the columns [column, column + kLanes) that exist.
inline void finish(const LinearArgs& args, std::int64_t row, std::int64_t column, F sum) {
  const std::int64_t left = args.weight.n - column;
  const int count = left < kLanes ? static_cast<int>(left) : kLanes;
  if (count <= 0) {
    return;
  }
  if (args.bias != nullptr) {
    sum = add(sum, load_first(args.bias + column, count));
  }
  sum = activate(args.activation, sum);
  if (!args.residual.empty()) {
    sum = add(sum, load_first(args.residual.row(row) + column, count));
  }
  store_first(args.y.row(row) + column, sum, count);
}

// All inputs of rows [row, row + kRows) times kVectors vectors from `column` on.
template <int kRows, int kVectors>
inline void narrow_tile(const LinearArgs& args, const float* a, std::int64_t row,
                        std::int64_t column) {
  const std::int64_t panel_size = args.weight.k * kPanelColumns;
  const float* weights =
      args.weight.panels + column / kPanelColumns * panel_size + column % kPanelColumns;
  F sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = zero();
    }
  }
  accumulate<kRows, kVectors>(a, weights, panel_size, args.weight.k, sums);
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      finish(args, row + r, column + v * kLanes, sums[r][v]);
    }
  }
}

// Few rows, one tile of them: the weights stream by once, several panels side by side.
template <int kRows>
void narrow_linear(Stream& stream, const LinearArgs& args, const float* a) {
  constexpr int kVectors = vectors_for(kRows);
  constexpr int kColumns = kVectors * kLanes > kPanelColumns ? kVectors * kLanes : kPanelColumns;
  const auto num_tasks = static_cast<int>((args.weight.n + kColumns - 1) / kColumns);
  stream.pool().parallel_for(num_tasks, [&](int task, int) {
    std::int64_t column = std::int64_t{task} * kColumns;
    const std::int64_t end = column + kColumns < args.weight.n ? column + kColumns : args.weight.n;
    // A tile may reach over the last column only inside its last panel, where zeros stand.
    const std::int64_t packed_end = (end + kPanelColumns - 1) / kPanelColumns * kPanelColumns;
    for (; column + kVectors * kLanes <= packed_end; column += kVectors * kLanes) {
      narrow_tile<kRows, kVectors>(args, a, 0, column);
    }
    for (; column < end; column += kTileVectors * kLanes) {
      narrow_tile<kRows, kTileVectors>(args, a, 0, column);
    }
  });
}

// One block of inputs for one tile of rows and one panel; partial sums rest in sums_at
// [kRows][kPanelColumns]: storing an f32 sum loses nothing, so the chain is unbroken.
template <int kRows>
void tall_tile(const float* a, const float* panel, std::int64_t count, float* sums_at) {
  for (int column = 0; column < kPanelColumns; column += kTileVectors * kLanes) {
    F sums[kRows][kTileVectors];
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kTileVectors; ++v) {
        sums[r][v] = load(sums_at + r * kPanelColumns + column + v * kLanes);
      }
    }
    accumulate<kRows, kTileVectors>(a, panel + column, 0, count, sums);
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kTileVectors; ++v) {
        store(sums_at + r * kPanelColumns + column + v * kLanes, sums[r][v]);
      }
    }
  }
}

// Rows in tiles of nearly equal height: tile t starts at row t * m / count.
struct RowTiles {
  std::int64_t m;
  int count;
  std::int64_t start(int tile) const { return m * tile / count; }
  int height(int tile) const { return static_cast<int>(start(tile + 1) - start(tile)); }
};

using TallTile = void (*)(const float*, const float*, std::int64_t, float*);
inline constexpr TallTile kTallTiles[] = {nullptr,
                                          tall_tile<1>,
                                          tall_tile<2>,
                                          tall_tile<3>,
                                          tall_tile<4>,
                                          tall_tile<5>,
                                          tall_tile<6>,
                                          tall_tile<kTileRowsMax == 12 ? 7 : 1>,
                                          tall_tile<kTileRowsMax == 12 ? 8 : 1>,
                                          tall_tile<kTileRowsMax == 12 ? 9 : 1>,
                                          tall_tile<kTileRowsMax == 12 ? 10 : 1>,
                                          tall_tile<kTileRowsMax == 12 ? 11 : 1>,
                                          tall_tile<kTileRowsMax == 12 ? 12 : 1>};

// Many rows: a panel at a time, its inputs in blocks, all row tiles over each block.
inline void tall_linear(Stream& stream, const LinearArgs& args, const float* a, float* sums_of_all,
                        const RowTiles& tiles) {
  const std::int64_t k = args.weight.k;
  const auto num_panels = static_cast<int>((args.weight.n + kPanelColumns - 1) / kPanelColumns);
  stream.pool().parallel_for(num_panels, [&](int panel, int worker) {
    float* sums = sums_of_all + worker * tiles.m * kPanelColumns;
    __builtin_memset(sums, 0, sizeof(float) * static_cast<std::uint64_t>(tiles.m * kPanelColumns));
    const float* weights = args.weight.panels + std::int64_t{panel} * k * kPanelColumns;
    for (std::int64_t first = 0; first < k; first += kInputsPerBlock) {
      const std::int64_t count = k - first < kInputsPerBlock ? k - first : kInputsPerBlock;
      for (int tile = 0; tile < tiles.count; ++tile) {
        const std::int64_t row = tiles.start(tile);
        const int height = tiles.height(tile);
        kTallTiles[height](a + row * k + first * height, weights + first * kPanelColumns, count,
                           sums + row * kPanelColumns);
      }
    }
    for (std::int64_t row = 0; row < tiles.m; ++row) {
      for (int v = 0; v < kPanelVectors; ++v) {
        finish(args, row, std::int64_t{panel} * kPanelColumns + v * kLanes,
               load(sums + row * kPanelColumns + v * kLanes));
      }
    }
  });
}

// x as tiles [tile][k][height], so that a tile's rows come from one line of the cache.
inline void interleave_rows(Stream& stream, const LinearArgs& args, const RowTiles& tiles,
                            float* a) {
  const std::int64_t k = args.weight.k;
  const auto num_parts = static_cast<int>((k + kInputsPerBlock - 1) / kInputsPerBlock);
  stream.pool().parallel_for(tiles.count * num_parts, [&](int task, int) {
    const int tile = task / num_parts;
    const std::int64_t first = task % num_parts * kInputsPerBlock;
    const std::int64_t end = first + kInputsPerBlock < k ? first + kInputsPerBlock : k;
    const std::int64_t row = tiles.start(tile);
    const int height = tiles.height(tile);
    float* to = a + row * k;
    for (int r = 0; r < height; ++r) {
      const float* from = args.x.row(row + r);
      for (std::int64_t at = first; at < end; ++at) {
        to[at * height + r] = from[at];
      }
    }
  });
}

using NarrowLinear = void (*)(Stream&, const LinearArgs&, const float*);
inline constexpr NarrowLinear kNarrowLinears[] = {nullptr,
                                                  narrow_linear<1>,
                                                  narrow_linear<2>,
                                                  narrow_linear<3>,
                                                  narrow_linear<4>,
                                                  narrow_linear<5>,
                                                  narrow_linear<6>,
                                                  narrow_linear<kTileRowsMax == 12 ? 7 : 1>,
                                                  narrow_linear<kTileRowsMax == 12 ? 8 : 1>,
                                                  narrow_linear<kTileRowsMax == 12 ? 9 : 1>,
                                                  narrow_linear<kTileRowsMax == 12 ? 10 : 1>,
                                                  narrow_linear<kTileRowsMax == 12 ? 11 : 1>,
                                                  narrow_linear<kTileRowsMax == 12 ? 12 : 1>};

inline void linear_f32(Stream& stream, const LinearArgs& args) {
  const std::int64_t m = args.x.rows;
  if (m == 1) {
    kNarrowLinears[1](stream, args, args.x.data);
    return;
  }
  const RowTiles tiles{m, static_cast<int>((m + kTileRowsMax - 1) / kTileRowsMax)};
  const std::int64_t num_interleaved = m * args.weight.k;
  const std::int64_t num_sums = stream.pool().num_threads() * m * kPanelColumns;
  auto* a = static_cast<float*>(
      stream.scratch(sizeof(float) * static_cast<std::uint64_t>(num_interleaved + num_sums)));
  interleave_rows(stream, args, tiles, a);
  if (tiles.count == 1) {
    kNarrowLinears[m](stream, args, a);
    return;
  }
  tall_linear(stream, args, a, a + num_interleaved, tiles);
}

}  // namespace lmtp::kernels::LMTP_KERNELS_ISA
