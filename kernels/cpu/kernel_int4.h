// The linear of kInt4: exact integer sums of a group, and one fused multiply-add a group. Up to
// kInt4GemvRows rows sums stay in registers over all inputs; of more they rest in memory as f32
// between groups, which loses nothing.
//
// x: of a tile of rows, for each group: their scales, what their sums start with, and units of four
// signed bytes, each [rows].
#pragma once

#include "kernel_group_panels.h"

namespace lmtp::kernels::LMTP_KERNELS_ISA {

// Rows and vectors of a register tile: products of all of them, codes, an input.
inline constexpr int kInt4Rows = 6;
inline constexpr int kInt4Vectors = kRegisters == 32 ? 4 : 2;
inline constexpr int kInt4Panels = kInt4Vectors > kPanelVectors ? kInt4Vectors / kPanelVectors : 1;
inline constexpr int kInt4GemvRows = kRegisters == 32 ? 4 : 1;
// GEMV: bytes ahead of the products that weights are prefetched.
constexpr std::int64_t int4_bytes_ahead(int rows) { return rows <= 2 ? 3072 : 6144; }

// Panels side by side whose sums are in registers.
constexpr int int4_gemv_panels(int rows) {
  return kRegisters != 32 ? (kPanelVectors <= 4 ? 2 : 1) : rows <= 2 ? 4 : 2;
}

// products[r][v] += the dots of one unit of each row with as many codes of each column.
template <int kRows, int kVectors>
[[gnu::always_inline]] inline void add_unit(const F (&codes)[kVectors], const float* units,
                                            F (&products)[kRows][kVectors]) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const F unit = broadcast(units[r]);
    for (int v = 0; v < kVectors; ++v) {
      products[r][v] = settled(dot_nibbles(codes[v], unit, products[r][v]));
    }
  }
}

// products[r][v] += the dots of kInputsOfBlock inputs with columns from vector `first` on. All
// lower halves go before the upper ones: there are registers for the codes of one kind beside the
// products. Without a loop, at whose ends gcc would copy the products.
template <int kRows, int kVectors>
[[gnu::always_inline]] inline void add_nibbles(const float* codes, std::int64_t panel_size,
                                               int first, const float* units,
                                               F (&products)[kRows][kVectors]) {
#pragma GCC unroll 4
  for (int i = 0; i < kInputsOfBlock / 8; ++i, codes += kPanelColumns, units += 2 * kRows) {
    F words[kVectors];
    F some[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      words[v] = load(codes + vector_offset(first + v, panel_size));
      some[v] = lower_nibbles(words[v]);
    }
    add_unit<kRows, kVectors>(some, units, products);
    for (int v = 0; v < kVectors; ++v) some[v] = upper_nibbles(words[v]);
    add_unit<kRows, kVectors>(some, units + kRows, products);
  }
}

// The products of a group, whose blocks are `count` inputs (kIsBlock: one).
template <bool kIsBlock, int kRows, int kVectors>
[[gnu::always_inline]] inline void dot_group(const float* codes, std::int64_t panel_size, int first,
                                             const float* x, std::int64_t count,
                                             F (&products)[kRows][kVectors]) {
  constexpr bool kAreInts = kNibbleDotsMax > kInputsOfBlock;
  static_assert(kAreInts || kNibbleDotsMax * 4 == kInputsOfBlock);
  for (int r = 0; r < kRows; ++r) {
    for (F& product : products[r]) product = settled(broadcast(x[kRows + r]));
  }
  const float* units = x + 2 * kRows;
  do {
    if constexpr (kAreInts) {
      add_nibbles<kRows, kVectors>(codes, panel_size, first, units, products);
    } else {
      F some[kRows][kVectors];
      for (int r = 0; r < kRows; ++r) {
        for (F& dots : some[r]) dots = zero();
      }
      add_nibbles<kRows, kVectors>(codes, panel_size, first, units, some);
      for (int r = 0; r < kRows; ++r) {
        for (int v = 0; v < kVectors; ++v) {
          products[r][v] = add_nibble_dots(products[r][v], some[r][v]);
        }
      }
    }
    codes += kInputsOfBlock / 8 * kPanelColumns;
    units += kInputsOfBlock / 4 * kRows;
    count -= kInputsOfBlock;
  } while (!kIsBlock && count > 0);
}

// kIsBlock: groups have kInputsOfBlock inputs. The inputs [first, end) of kPanels panels times a
// tile of rows. `ahead`: floats from weights to those that are prefetched meanwhile, or 0. The sums
// of panels are sums_size floats apart.
template <bool kIsBlock, int kRows, int kPanels>
void int4_block(const GroupPanels& weights, const float* panel, std::int64_t first,
                std::int64_t end, std::int64_t ahead, const float* tile, float* sums,
                std::int64_t sums_size) {
  constexpr int kAll = kPanels * kPanelVectors;
  constexpr int kVectors = kInt4Vectors < kAll ? kInt4Vectors : kAll;
  constexpr int kLevel = kRegisters != 32 && kRows <= kGroupRowsOfL1 ? 3 : 2;
  const ElementType type = weights.by.scales;
  const float* head = panel + first / weights.group * weights.group_size;
  const float* x = tile + first / weights.group * (2 + weights.group / 4) * kRows;
  while (first < end) {
    const std::int64_t count = weights.group_end(first) - first;
    for (int p = 0; p < kPanels && ahead != 0; ++p) {
      const float* next = head + p * weights.size + ahead;
      for (std::int64_t at = 0; at < weights.group_size; at += kFloatsPerLine) {
        __builtin_prefetch(next + at, 0, kLevel);
      }
    }
#pragma GCC unroll 4
    for (int from = 0; from < kAll; from += kVectors) {
      F products[kRows][kVectors];
      dot_group<kIsBlock, kRows, kVectors>(head + weights.head_size, weights.size, from, x, count,
                                           products);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const F scales = scales_at(head, type, from + v, weights.size);
        for (int r = 0; r < kRows; ++r) {
          float* sum = sums + r * kPanelColumns + vector_offset(from + v, sums_size);
          store(sum, multiply_add(to_float(products[r][v]), multiply(broadcast(x[r]), scales),
                                  load(sum)));
        }
      }
    }
    first += count;
    head += weights.group_size;
    x += (2 + count / 4) * kRows;
  }
}

using Int4Block = void (*)(const GroupPanels&, const float*, std::int64_t, std::int64_t,
                           std::int64_t, const float*, float*, std::int64_t);

// [panels side by side][height], by whether groups are blocks.
template <bool kIsBlock, int... kRows>
struct Int4BlockTable {
  static constexpr Int4Block kOf[2][sizeof...(kRows) + 1] = {
      {nullptr, int4_block<kIsBlock, kRows, 1>...},
      {nullptr, int4_block<kIsBlock, kRows, kInt4Panels>...}};
};
template <bool kIsBlock>
using Int4Blocks = Int4BlockTable<kIsBlock, 1, 2, 3, 4, 5, 6>;

// GEMV: all inputs of the rows times kPanels panels, of which the first begins with `column`.
// `next`: the first panel that the worker needs after them.
template <bool kIsBlock, int kRows, int kPanels>
void int4_gemv_tile(const LinearWork& work, const GroupPanels& weights, const float* panel,
                    const float* next, std::int64_t column) {
  constexpr int kAll = kPanels * kPanelVectors;
  constexpr int kVectors = kRows > 2 || kInt4Vectors > kAll ? kTileVectors : kInt4Vectors;
  const ElementType type = weights.by.scales;
  const float* const end = panel + weights.last_group / weights.group * weights.group_size;
  const std::int64_t groups = 1 + int4_bytes_ahead(kRows) / (kPanels * weights.group_size *
                                                             static_cast<int>(sizeof(float)));
  const std::int64_t ahead = groups * weights.group_size;
  const float* x = work.units;
  F sums[kRows][kAll];
  for (int r = 0; r < kRows; ++r) {
    for (F& sum : sums[r]) sum = zero();
  }
  for (const float* head = panel; head <= end; head += weights.group_size) {
    const std::int64_t count = head < end ? weights.group : weights.inputs - weights.last_group;
    // After the panels' end it is as far from where `next` begins.
    const float* later =
        end - head >= ahead ? head + ahead : next + (ahead - weights.group_size - (end - head));
    for (int p = 0; p < kPanels; ++p) {
      for (std::int64_t at = 0; at < weights.group_size; at += kFloatsPerLine) {
        __builtin_prefetch(later + p * weights.size + at, 0, 2);
      }
    }
#pragma GCC unroll 16
    for (int from = 0; from < kAll; from += kVectors) {
      F products[kRows][kVectors];
      dot_group<kIsBlock, kRows, kVectors>(head + weights.head_size, weights.size, from, x, count,
                                           products);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const F scales = scales_at(head, type, from + v, weights.size);
        for (int r = 0; r < kRows; ++r) {
          sums[r][from + v] = multiply_add(to_float(products[r][v]),
                                           multiply(broadcast(x[r]), scales), sums[r][from + v]);
        }
      }
    }
    x += (2 + count / 4) * kRows;
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kAll; ++v) {
      finish<WeightType::kF32>(work, r, column + v * kLanes, sums[r][v], work.args.activation);
    }
  }
}

// GEMV: the panels of a task.
template <bool kIsBlock, int kRows>
void int4_gemv(const LinearWork& work, const GroupPanels& weights, int first, int count,
               int to_next) {
  for_gemv_panels<int4_gemv_panels(kRows)>(
      weights, first, count, to_next,
      [&]<int kPanels>(const float* panel, const float* next, std::int64_t column) {
        int4_gemv_tile<kIsBlock, kRows, kPanels>(work, weights, panel, next, column);
      });
}

template <bool kIsBlock, int... kRows>
struct Int4GemvTable {
  static constexpr GroupGemv kOf[] = {nullptr, int4_gemv<kIsBlock, kRows>...};
};
template <bool kIsBlock, bool kMany = kInt4GemvRows == 4>
struct Int4Gemvs : Int4GemvTable<kIsBlock, 1> {};
template <bool kIsBlock>
struct Int4Gemvs<kIsBlock, true> : Int4GemvTable<kIsBlock, 1, 2, 3, 4> {};

// Elements [at, at + kLanes) of k, zero beyond them.
[[gnu::always_inline]] inline F load_inputs(const float* x, std::int64_t at, std::int64_t k) {
  const std::int64_t left = k - at;
  return left >= kLanes ? load(x + at)
         : left > 0     ? load_first(x + at, static_cast<int>(left))
                        : zero();
}

// The scales of kLanes groups of `group` inputs from `first` on; see row_scale().
inline F group_scales(const float* x, std::int64_t first, std::int64_t group, std::int64_t k) {
  F largest[kLanes];
  F poison[kLanes];
  for (int g = 0; g < kLanes; ++g, first += group) {
    largest[g] = poison[g] = zero();
    for (std::int64_t at = first; at < first + group; at += kLanes) {
      const F v = load_inputs(x, at, k);
      largest[g] = greater_of(absolute(v), largest[g]);
      poison[g] = multiply_add(v, zero(), poison[g]);
    }
  }
  transpose(largest);
  transpose(poison);
  for (int i = 1; i < kLanes; ++i) {
    largest[0] = greater_of(largest[i], largest[0]);
    poison[0] = add(poison[0], poison[i]);
  }
  return add(multiply(largest[0], broadcast(1.0F / 127.0F)), poison[0]);
}

// x of a row, into place r of a tile of so many rows.
inline void quantise_row(const float* x, const PackedLinear& weight, int height, int r, float* to) {
  constexpr std::int64_t kGroupMax = 128;
  constexpr std::uint32_t kSigns = 0x80808080U;
  constexpr std::int32_t kOfSigns = 4 * 128;  // in the sum of a unit
  const std::uint32_t ones = 0x01010101U;
  float one_each = 0.0F;
  __builtin_memcpy(&one_each, &ones, sizeof(ones));
  const std::int64_t inputs = padded_inputs(weight.k);
  const std::int64_t group = weight.grouping.group;
  const int shift = __builtin_ctzll(static_cast<unsigned long long>(group));
  for (std::int64_t first = 0; first < inputs; first += kLanes * group) {
    const std::int64_t left = inputs - first;
    const std::int64_t count = left < kLanes * group ? left : kLanes * group;
    const F scale = group_scales(x, first, group, weight.k);
    float scales[kLanes];
    float inverses[kLanes];
    store(scales, scale);
    store(inverses, where_less(zero(), scale, divide(broadcast(1.0F), scale), zero()));
    std::uint32_t units[kLanes * kGroupMax / 4 + kLanes];
    std::int32_t dots[kLanes * kGroupMax / 4 + kLanes];
    for (std::int64_t at = 0; at < count; at += 4 * kLanes) {
      F some[4];
      for (int i = 0; i < 4; ++i) {
        const std::int64_t input = at + i * kLanes;
        const float inverse = input < count ? inverses[input >> shift] : 0.0F;
        some[i] = multiply(load_inputs(x, first + input, weight.k), broadcast(inverse));
      }
      const F bytes = units_of_int8(some);
      store(reinterpret_cast<float*>(units + at / 4), bytes);
      store(reinterpret_cast<float*>(dots + at / 4), dot_int8(bytes, broadcast(one_each), zero()));
    }
    for (std::int64_t at = 0; at < count; at += group) {
      const std::int64_t end = (at + group < count ? at + group : count) / 4;
      float* unit = to + 2 * height + r;
      std::int32_t sum = 0;
      for (std::int64_t u = at / 4; u < end; ++u, unit += height) {
        const std::uint32_t bytes = units[u] ^ kSigns;
        __builtin_memcpy(unit, &bytes, sizeof(bytes));
        sum += dots[u] - kOfSigns;
      }
      to[r] = scales[at >> shift];
      // Codes are products' factors as they are: from 0 instead of from -8.
      sum *= -8;
      __builtin_memcpy(to + height + r, &sum, sizeof(sum));
      to += (2 + end - at / 4) * height;
    }
  }
}

template <bool kIsBlock>
inline void int4_linear_of(Stream& stream, const LinearArgs& args) {
  const GroupPanels weights(args.weight);
  const std::int64_t m = args.x.rows;
  const RowTiles tiles{m, static_cast<int>((m + kInt4Rows - 1) / kInt4Rows)};
  const bool is_gemv = m <= kInt4GemvRows;
  const int most = is_gemv ? int4_gemv_panels(static_cast<int>(m)) : kGroupPanels;
  const GroupTasks tasks(args.weight, most, stream.pool().num_threads());
  const std::int64_t row_units = 2 * num_groups(weights.by, args.weight.k) + weights.inputs / 4;
  const std::int64_t sums_size = m * kPanelColumns;  // of a panel
  const std::int64_t num_sums = is_gemv ? 0 : tasks.num_workers * tasks.each * sums_size;
  auto* units = static_cast<float*>(
      stream.scratch(sizeof(float) * static_cast<std::uint64_t>(m * row_units + num_sums)));
  stream.pool().parallel_for(static_cast<int>(m), [&](int row, int) {
    int tile = 0;
    while (tiles.start(tile + 1) <= row) ++tile;
    const std::int64_t first = tiles.start(tile);
    quantise_row(args.x.row(row), args.weight, tiles.height(tile), static_cast<int>(row - first),
                 units + first * row_units);
  });
  if (is_gemv) {
    run_group_gemv(stream, {args, weights.panels, units, nullptr}, weights, tasks,
                   Int4Gemvs<kIsBlock>::kOf[m]);
    return;
  }
  for_group_blocks(stream, args, weights, tasks, units + m * row_units,
                   [&](int /*worker*/, int panel, int count, std::int64_t first, std::int64_t end,
                       std::int64_t ahead, float* sums) {
                     for (int p = 0; p < count;) {
                       const int some = count - p >= kInt4Panels ? kInt4Panels : 1;
                       for (int tile = 0; tile < tiles.count; ++tile) {
                         const std::int64_t row = tiles.start(tile);
                         Int4Blocks<kIsBlock>::kOf[some > 1 ? 1 : 0][tiles.height(tile)](
                             weights, weights.panels + (panel + p) * weights.size, first, end,
                             tile == 0 ? ahead : 0, units + row * row_units,
                             sums + p * sums_size + row * kPanelColumns, sums_size);
                       }
                       p += some;
                     }
                   });
}

inline void int4_linear(Stream& stream, const LinearArgs& args) {
  const bool is_block = GroupPanels(args.weight).group == kInputsOfBlock;
  (is_block ? int4_linear_of<true> : int4_linear_of<false>)(stream, args);
}

}  // namespace lmtp::kernels::LMTP_KERNELS_ISA
