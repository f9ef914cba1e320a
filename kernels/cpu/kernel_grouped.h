// The linear of weights by groups (kernels/grouping.h). Here that of kWidened: the products of a
// tile of rows with a part of a panel. Sums rest in memory as f32 between parts.
#pragma once

#include "kernel_group_panels.h"
#include "kernel_int4.h"

namespace lmtp::kernels::LMTP_KERNELS_ISA {

// Inputs of a part, if the group does not end before.
inline constexpr std::int64_t kPartInputs = 128;
// GEMV: rows, and floats ahead of the products that weights of each panel are prefetched.
inline constexpr int kWidenedGemvRows = kRegisters == 32 ? 2 : 1;
inline constexpr std::int64_t kWidenedAhead = 384;

// Panels side by side whose sums are in registers.
constexpr int widened_gemv_panels(int rows) { return kRegisters == 32 && rows <= 2 ? 2 : 1; }

// Code kIndex of each lane as a number, less the base.
template <CodeType kCodes, int kIndex>
[[gnu::always_inline]] inline F code_number(F words, const Nibbles& nibbles) {
  if constexpr (kCodes == CodeType::kInt4) {
    return nibbles.of(shift_right(words, code_shift(kIndex)));
  } else if constexpr (kCodes == CodeType::kInt8) {
    return signed_byte<kIndex>(words);
  } else if constexpr (kCodes == CodeType::kE2M1) {
    return e2m1_nibble(shift_right(words, code_shift(kIndex)));
  } else {
    return e4m3_byte<kIndex>(words);
  }
}

// A tile of rows and vectors in progress.
template <CodeType kCodes, int kRows, int kVectors>
struct WidenedTile {
  F sums[kRows][kVectors];
  F scales[kVectors];
  F offsets[kVectors];
  const Nibbles nibbles;

  explicit WidenedTile(const Grouping& by) : nibbles(static_cast<float>(code_base(by))) {}

  // The scales and offsets of a group from vector `first` on.
  [[gnu::always_inline]] void set_group(const GroupPanels& weights, const float* head, int first) {
    const float* of_offsets = head + weights.head_size - kPanelColumns;
    for (int v = 0; v < kVectors; ++v) {
      scales[v] = scales_at(head, weights.by.scales, first + v, weights.size);
      offsets[v] = weights.by.has_offsets
                       ? load(of_offsets + vector_offset(first + v, weights.size))
                       : zero();
    }
  }

  // The products of `count` inputs, which are f32, [inputs][rows].
  [[gnu::always_inline]] void add_codes(const float* codes, std::int64_t panel_size, int first,
                                        const float* inputs, std::int64_t count) {
    for (std::int64_t i = 0; i < count; i += codes_per_word(kCodes)) {
      F words[kVectors];
      for (int v = 0; v < kVectors; ++v) {
        words[v] = load(codes + vector_offset(first + v, panel_size));
      }
      add_word(words, inputs);
      inputs += codes_per_word(kCodes) * kRows;
      codes += kPanelColumns;
    }
  }

  // `count` inputs as f32, [inputs][kPanelColumns].
  [[gnu::always_inline]] void store_codes(const float* codes, float* to, std::int64_t count) const {
    for (std::int64_t i = 0; i < count; i += codes_per_word(kCodes)) {
      for (int v = 0; v < kVectors; ++v) store_word(load(codes + v * kLanes), v, to + v * kLanes);
      codes += kPanelColumns;
      to += codes_per_word(kCodes) * kPanelColumns;
    }
  }

  template <int kIndex = 0>
  [[gnu::always_inline]] void store_word(F words, int v, float* to) const {
    if constexpr (kIndex < codes_per_word(kCodes)) {
      store(to + kIndex * kPanelColumns,
            multiply_add(code_number<kCodes, kIndex>(words, nibbles), scales[v], offsets[v]));
      store_word<kIndex + 1>(words, v, to);
    }
  }

  // Input kIndex of the words, and those after it.
  template <int kIndex = 0>
  [[gnu::always_inline]] void add_word(const F (&words)[kVectors], const float* inputs) {
    if constexpr (kIndex < codes_per_word(kCodes)) {
      F weights[kVectors];
      for (int v = 0; v < kVectors; ++v) {
        weights[v] =
            multiply_add(code_number<kCodes, kIndex>(words[v], nibbles), scales[v], offsets[v]);
      }
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const F input = broadcast(inputs[kIndex * kRows + r]);
        for (int v = 0; v < kVectors; ++v) sums[r][v] = multiply_add(input, weights[v], sums[r][v]);
      }
      add_word<kIndex + 1>(words, inputs);
    }
  }
};

// The inputs of a part of a group times a tile of rows.
template <CodeType kCodes, int kRows>
[[gnu::always_inline]] inline void widened_part(const GroupPanels& weights, const float* head,
                                                const float* codes, std::int64_t count,
                                                const float* x, float* sums) {
#pragma GCC unroll 8
  for (int first = 0; first < kPanelVectors; first += kTileVectors) {
    WidenedTile<kCodes, kRows, kTileVectors> tile(weights.by);
    tile.set_group(weights, head, first);
    for (int v = 0; v < kTileVectors; ++v) {
      for (int r = 0; r < kRows; ++r) {
        tile.sums[r][v] = load(sums + r * kPanelColumns + (first + v) * kLanes);
      }
    }
    tile.add_codes(codes, weights.size, first, x, count);
    for (int v = 0; v < kTileVectors; ++v) {
      for (int r = 0; r < kRows; ++r) {
        store(sums + r * kPanelColumns + (first + v) * kLanes, tile.sums[r][v]);
      }
    }
  }
}

// Calls part(head of the group, codes, count) for the inputs [first, end) of a panel, part by part.
// `ahead`: floats from weights to those that are prefetched meanwhile to cache kLevel, or 0.
template <int kLevel, typename Part>
[[gnu::always_inline]] inline void for_parts(const GroupPanels& weights, const float* panel,
                                             std::int64_t first, std::int64_t end,
                                             std::int64_t ahead, const Part& part) {
  std::int64_t start = first / weights.group * weights.group;  // of the group
  if (start > weights.last_group) start = weights.last_group;
  const float* head = panel + start / weights.group * weights.group_size;
  while (first < end) {
    const std::int64_t group_end = weights.group_end(start);
    const std::int64_t count = group_end - first < kPartInputs ? group_end - first : kPartInputs;
    const float* codes = head + weights.head_size + (first - start) * weights.input_size;
    if (ahead != 0) {
      const float* next = (first == start ? head : codes) + ahead;
      const float* last = codes + count * weights.input_size + ahead;
      for (; next < last; next += kFloatsPerLine) __builtin_prefetch(next, 0, kLevel);
    }
    part(head, codes, count);
    first += count;
    if (first == group_end) {
      start = group_end;
      head += weights.group_size;
    }
  }
}

// The inputs [first, end) of a panel times a tile of rows.
using AddParts = void (*)(const GroupPanels& weights, const float* panel, std::int64_t first,
                          std::int64_t end, std::int64_t ahead, const float* tile, float* sums);

template <CodeType kCodes, int kRows>
void add_parts(const GroupPanels& weights, const float* panel, std::int64_t first, std::int64_t end,
               std::int64_t ahead, const float* tile, float* sums) {
  const float* x = tile + first * kRows;
  for_parts<kRows <= kGroupRowsOfL1 ? 3 : 2>(
      weights, panel, first, end, ahead,
      [&](const float* head, const float* codes, std::int64_t count) {
        widened_part<kCodes, kRows>(weights, head, codes, count, x, sums);
        x += count * kRows;
      });
}

// The inputs [first, end) of a panel as f32: [inputs][kPanelColumns].
template <CodeType kCodes>
void widen_block(const GroupPanels& weights, const float* panel, std::int64_t first,
                 std::int64_t end, std::int64_t ahead, float* to) {
  for_parts<2>(weights, panel, first, end, ahead,
               [&](const float* head, const float* codes, std::int64_t count) {
                 for (int v = 0; v < kPanelVectors; v += kTileVectors) {
                   WidenedTile<kCodes, 1, kTileVectors> tile(weights.by);
                   tile.set_group(weights, head, v);
                   tile.store_codes(codes + v * kLanes, to + v * kLanes, count);
                 }
                 to += count * kPanelColumns;
               });
}

// For tiles of every height.
template <int... kRows>
struct GroupPartTable {
  static constexpr AddParts kOf[][sizeof...(kRows) + 1] = {
      {nullptr, add_parts<CodeType::kInt4, kRows>...},
      {nullptr, add_parts<CodeType::kInt8, kRows>...},
      {nullptr, add_parts<CodeType::kE4M3, kRows>...},
      {nullptr, add_parts<CodeType::kE2M1, kRows>...}};
};
template <bool kMany = kTileRowsMax == 12>
struct GroupParts : GroupPartTable<1, 2, 3, 4, 5, 6> {};
template <>
struct GroupParts<true> : GroupPartTable<1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12> {};

// GEMV: all inputs of the rows times kPanels panels, of which the first begins with `column`.
// `next`: the first panel that the worker needs after them.
template <CodeType kCodes, int kRows, int kPanels>
void widened_gemv_tile(const LinearWork& work, const GroupPanels& weights, const float* panel,
                       const float* next, std::int64_t column) {
  constexpr int kVectors = kPanels * kPanelVectors;
  const float* const end = panel + weights.size;
  const float* x = work.units;
  WidenedTile<kCodes, kRows, kVectors> tile(weights.by);
  for (int r = 0; r < kRows; ++r) {
    for (F& sum : tile.sums[r]) sum = zero();
  }
  const float* at = panel;
  for (std::int64_t start = 0; start < weights.inputs; start = weights.group_end(start)) {
    tile.set_group(weights, at, 0);
    const float* codes = at + weights.head_size;
    for (std::int64_t left = weights.group_end(start) - start; left > 0;) {
      const std::int64_t count = left < kPartInputs ? left : kPartInputs;
      const std::int64_t size = codes - at + count * weights.input_size;
      const float* later =
          end - at > kWidenedAhead ? at + kWidenedAhead : next + (kWidenedAhead - (end - at));
      for (int p = 0; p < kPanels; ++p) {
        for (std::int64_t line = 0; line < size; line += kFloatsPerLine) {
          __builtin_prefetch(later + p * weights.size + line, 0, 2);
        }
      }
      tile.add_codes(codes, weights.size, 0, x, count);
      x += count * kRows;
      left -= count;
      at = codes += count * weights.input_size;
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      finish<WeightType::kF32>(work, r, column + v * kLanes, tile.sums[r][v], work.args.activation);
    }
  }
}

// GEMV: the panels of a task.
template <CodeType kCodes, int kRows>
void widened_gemv(const LinearWork& work, const GroupPanels& weights, int first, int count,
                  int to_next) {
  for_gemv_panels<widened_gemv_panels(kRows)>(
      weights, first, count, to_next,
      [&]<int kPanels>(const float* panel, const float* next, std::int64_t column) {
        widened_gemv_tile<kCodes, kRows, kPanels>(work, weights, panel, next, column);
      });
}

template <int... kRows>
struct WidenedGemvTable {
  static constexpr GroupGemv kOf[][sizeof...(kRows) + 1] = {
      {nullptr, widened_gemv<CodeType::kInt4, kRows>...},
      {nullptr, widened_gemv<CodeType::kInt8, kRows>...},
      {nullptr, widened_gemv<CodeType::kE4M3, kRows>...},
      {nullptr, widened_gemv<CodeType::kE2M1, kRows>...}};
};
template <bool kMany = kWidenedGemvRows == 2>
struct WidenedGemvs : WidenedGemvTable<1> {};
template <>
struct WidenedGemvs<true> : WidenedGemvTable<1, 2> {};

// Rows from which on a block is widened once for all its tiles.
inline constexpr std::int64_t kWidenedOnceRows = 2 * kTileRowsMax;

// Many rows: blocks widened once, then f32's products.
inline void widened_gemm(Stream& stream, const LinearArgs& args, const GroupPanels& weights,
                         const RowTiles& tiles, const GroupTasks& tasks, const float* units,
                         float* sums_of_all, float* widened) {
  using Widen =
      void (*)(const GroupPanels&, const float*, std::int64_t, std::int64_t, std::int64_t, float*);
  static constexpr Widen kWiden[] = {widen_block<CodeType::kInt4>, widen_block<CodeType::kInt8>,
                                     widen_block<CodeType::kE4M3>, widen_block<CodeType::kE2M1>};
  const std::int64_t sums_size = tiles.m * kPanelColumns;  // of a panel
  for_group_blocks(
      stream, args, weights, tasks, sums_of_all,
      [&](int worker, int panel, int count, std::int64_t first, std::int64_t end,
          std::int64_t ahead, float* sums) {
        float* own = widened + worker * kGroupBlockInputs * kPanelColumns;
        for (int p = 0; p < count; ++p) {
          kWiden[static_cast<int>(weights.by.codes)](
              weights, weights.panels + (panel + p) * weights.size, first, end, ahead, own);
          L2PrefetchCursor none(nullptr, 0, 0, 0, 0);
          for (int tile = 0; tile < tiles.count; ++tile) {
            const std::int64_t row = tiles.start(tile);
            const int height = tiles.height(tile);
            Tiles<WeightType::kF32>::kGemm[height](units + row * weights.inputs + first * height,
                                                   own, end - first, none,
                                                   sums + p * sums_size + row * kPanelColumns);
          }
        }
      });
}

inline void widened_linear(Stream& stream, const LinearArgs& args) {
  const GroupPanels weights(args.weight);
  const std::int64_t m = args.x.rows;
  const RowTiles tiles{m, static_cast<int>((m + kTileRowsMax - 1) / kTileRowsMax)};
  const bool is_gemv = m <= kWidenedGemvRows;
  const GroupTasks tasks(args.weight,
                         is_gemv ? widened_gemv_panels(static_cast<int>(m)) : kGroupPanels,
                         stream.pool().num_threads());
  const std::int64_t sums_size = m * kPanelColumns;  // of a panel
  const std::int64_t num_sums = is_gemv ? 0 : tasks.num_workers * tasks.each * sums_size;
  const bool widens_once = m >= kWidenedOnceRows;
  const std::int64_t num_widened =
      widens_once ? tasks.num_workers * kGroupBlockInputs * kPanelColumns : 0;
  auto* units = static_cast<float*>(stream.scratch(
      sizeof(float) * static_cast<std::uint64_t>(m * weights.inputs + num_widened + num_sums)));
  interleave_rows<WeightType::kWidened>(stream, args, weights.inputs, tiles, units, nullptr);
  const auto codes = static_cast<int>(weights.by.codes);
  if (is_gemv) {
    run_group_gemv(stream, {args, weights.panels, units, nullptr}, weights, tasks,
                   WidenedGemvs<>::kOf[codes][m]);
    return;
  }
  if (widens_once) {
    float* widened = units + m * weights.inputs;
    widened_gemm(stream, args, weights, tiles, tasks, units, widened + num_widened, widened);
    return;
  }
  const AddParts* add = GroupParts<>::kOf[codes];
  for_group_blocks(stream, args, weights, tasks, units + m * weights.inputs,
                   [&](int /*worker*/, int panel, int count, std::int64_t first, std::int64_t end,
                       std::int64_t ahead, float* sums) {
                     for (int p = 0; p < count; ++p) {
                       for (int tile = 0; tile < tiles.count; ++tile) {
                         const std::int64_t row = tiles.start(tile);
                         add[tiles.height(tile)](
                             weights, weights.panels + (panel + p) * weights.size, first, end,
                             tile == 0 ? ahead : 0, units + row * weights.inputs,
                             sums + p * sums_size + row * kPanelColumns);
                       }
                     }
                   });
}

inline void grouped_linear(Stream& stream, const LinearArgs& args) {
  (args.weight.type == WeightType::kInt4 ? int4_linear : widened_linear)(stream, args);
}

}  // namespace lmtp::kernels::LMTP_KERNELS_ISA
