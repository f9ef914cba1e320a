// The linear of weights by groups (kernels/grouping.h): one driver, and for each kind of weight the
// products of a tile of rows with a part of a panel. Sums rest in memory as f32 between parts.
#pragma once

#include "kernel_linear.h"

namespace lmtp::kernels::LMTP_KERNELS_ISA {

// Inputs and panels of a block, over which all row tiles pass: with the inputs of a tile of rows it
// stays in the L1 cache.
inline constexpr std::int64_t kGroupBlockInputs = 256;
inline constexpr int kGroupPanels = 4;
// Up to so many rows weights are prefetched to L1: less than that is kept there of inputs.
inline constexpr int kGroupRowsOfL1 = 4;
// Inputs of a part, if the group does not end before.
inline constexpr std::int64_t kPartInputs = 128;

// Some inputs of one panel that share their scales.
struct GroupPart {
  const float* codes;
  const void* scales;    // [kPanelColumns]
  const float* offsets;  // as scales, or null
  std::int64_t count;    // of inputs
};

// A weight's panels. Sizes are those of memory, in floats.
struct GroupPanels {
  const float* panels;
  Grouping by;
  std::int64_t inputs;      // padded
  std::int64_t group;       // inputs from group to group
  std::int64_t last_group;  // its first input; it has all the padding
  std::int64_t head_size;   // of a group: what is before its codes
  std::int64_t input_size;  // of an input's codes
  std::int64_t size;        // of a panel

  explicit GroupPanels(const PackedLinear& weight)
      : panels(static_cast<const float*>(weight.panels)),
        by(weight.grouping),
        inputs(padded_inputs(weight.k)),
        group(by.group < weight.k ? by.group : inputs),
        last_group((num_groups(by, weight.k) - 1) * group),
        head_size(group_head_size(by)),
        input_size(kPanelColumns / codes_per_word(by.codes)),
        size(panel_size(weight.k, weight.type, by)) {}

  // What some inputs take of a panel, nearly.
  std::int64_t floats(std::int64_t count) const { return size * count / inputs; }
};

[[gnu::always_inline]] inline F load_scales(const void* scales, ElementType type, int column) {
  if (type == ElementType::kF32) return load(static_cast<const float*>(scales) + column);
  const auto* at = static_cast<const std::uint16_t*>(scales) + column;
  return type == ElementType::kBF16 ? load_bf16(at) : load_f16(at);
}

// products[r][v] += the dots of `count` inputs: codes of a panel's columns, and units of four
// signed bytes [rows].
template <int kRows>
[[gnu::always_inline]] inline void add_nibbles(const float* codes, const float* inputs,
                                               std::int64_t count,
                                               F (&products)[kRows][kTileVectors]) {
  for (std::int64_t i = 0; i < count; i += 8, codes += kPanelColumns, inputs += 2 * kRows) {
    F lower[kTileVectors];
    F upper[kTileVectors];
    for (int v = 0; v < kTileVectors; ++v) {
      const F both = load(codes + v * kLanes);
      lower[v] = lower_nibbles(both);
      upper[v] = upper_nibbles(both);
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const F first = broadcast(inputs[r]);
      const F second = broadcast(inputs[kRows + r]);
      for (int v = 0; v < kTileVectors; ++v) {
        products[r][v] = dot_nibbles(lower[v], first, products[r][v]);
        products[r][v] = dot_nibbles(upper[v], second, products[r][v]);
      }
    }
  }
}

// products[r][v] += the dots of one unit of each row with as many codes of each column.
template <int kRows>
[[gnu::always_inline]] inline void add_unit(const F (&codes)[kTileVectors], const float* units,
                                            F (&products)[kRows][kTileVectors]) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const F unit = broadcast(units[r]);
    for (int v = 0; v < kTileVectors; ++v) {
      products[r][v] = settled(dot_nibbles(codes[v], unit, products[r][v]));
    }
  }
}

// As add_nibbles(), with all lower halves before the upper ones: there are registers for the codes
// of one kind beside the products.
template <int kRows>
[[gnu::always_inline]] inline void add_halves(const float* codes, const float* inputs,
                                              std::int64_t count,
                                              F (&products)[kRows][kTileVectors]) {
#pragma GCC unroll 4
  for (std::int64_t i = 0; i < count; i += 8, codes += kPanelColumns, inputs += 2 * kRows) {
    F some[kTileVectors];
    for (int v = 0; v < kTileVectors; ++v) some[v] = lower_nibbles(load(codes + v * kLanes));
    add_unit<kRows>(some, inputs, products);
    for (int v = 0; v < kTileVectors; ++v) some[v] = upper_nibbles(load(codes + v * kLanes));
    add_unit<kRows>(some, inputs + kRows, products);
  }
}

// The dots of all inputs of a part, and what each row's start with.
template <int kRows>
[[gnu::always_inline]] inline void dot_part(const float* codes, const float* inputs,
                                            const float* starts, std::int64_t count,
                                            F (&products)[kRows][kTileVectors]) {
  if constexpr (kNibbleDotsMax * 4 >= kPartInputs) {
    for (int r = 0; r < kRows; ++r) {
      for (F& product : products[r]) product = broadcast(starts[r]);
    }
    add_nibbles<kRows>(codes, inputs, count, products);
  } else {
    if (count <= 0) __builtin_unreachable();  // or gcc takes the products for uninitialised
    constexpr std::int64_t kSome = kNibbleDotsMax * 4;
    for (std::int64_t first = 0; first < count; first += kSome) {
      F some[kRows][kTileVectors];
      for (int r = 0; r < kRows; ++r) {
        for (F& product : some[r]) product = zero();
      }
      const std::int64_t left = count - first;
      if constexpr ((kRows + 2) * kTileVectors < kRegisters) {
        add_nibbles<kRows>(codes, inputs, left < kSome ? left : kSome, some);
      } else if (left < kSome) {
        add_halves<kRows>(codes, inputs, left, some);
      } else {
        add_halves<kRows>(codes, inputs, kSome, some);  // without a loop
      }
      for (int r = 0; r < kRows; ++r) {
        for (int v = 0; v < kTileVectors; ++v) {
          const F sum = first == 0 ? broadcast(starts[r]) : products[r][v];
          products[r][v] = add_nibble_dots(sum, some[r][v]);
        }
      }
      codes += kSome / 8 * kPanelColumns;
      inputs += kSome / 4 * kRows;
    }
  }
}

// kInt4: rows of x for one group: their scales, what their sums start with, and units of four
// signed bytes, each [rows].
template <int kRows>
[[gnu::always_inline]] inline void int4_part(const GroupPart& part, const Grouping& by,
                                             const float* x, float* sums) {
  constexpr int kColumns = kTileVectors * kLanes;
  for (int column = 0; column < kPanelColumns; column += kColumns) {
    F products[kRows][kTileVectors];
    dot_part<kRows>(part.codes + column, x + 2 * kRows, x + kRows, part.count, products);
    for (int v = 0; v < kTileVectors; ++v) {
      const F scale = load_scales(part.scales, by.scales, column + v * kLanes);
      for (int r = 0; r < kRows; ++r) {
        float* sum = sums + r * kPanelColumns + column + v * kLanes;
        store(sum,
              multiply_add(to_float(products[r][v]), multiply(broadcast(x[r]), scale), load(sum)));
      }
    }
  }
}

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

// The tile of rows and vectors of a part in progress.
template <CodeType kCodes, int kRows>
struct WidenedTile {
  F sums[kRows][kTileVectors];
  F scales[kTileVectors];
  F offsets[kTileVectors];
  const Nibbles nibbles;

  explicit WidenedTile(const Grouping& by) : nibbles(static_cast<float>(code_base(by))) {}

  // Input kIndex of the words, and those behind it.
  template <int kIndex = 0>
  [[gnu::always_inline]] void add_word(const F (&words)[kTileVectors], const float* inputs) {
    if constexpr (kIndex < codes_per_word(kCodes)) {
      F weights[kTileVectors];
      for (int v = 0; v < kTileVectors; ++v) {
        weights[v] =
            multiply_add(code_number<kCodes, kIndex>(words[v], nibbles), scales[v], offsets[v]);
      }
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const F input = broadcast(inputs[kIndex * kRows + r]);
        for (int v = 0; v < kTileVectors; ++v) {
          sums[r][v] = multiply_add(input, weights[v], sums[r][v]);
        }
      }
      add_word<kIndex + 1>(words, inputs);
    }
  }
};

// kWidened: inputs are f32, [inputs][rows].
template <CodeType kCodes, int kRows>
[[gnu::always_inline]] inline void widened_part(const GroupPart& part, const Grouping& by,
                                                const float* x, float* sums) {
  constexpr int kColumns = kTileVectors * kLanes;
  for (int column = 0; column < kPanelColumns; column += kColumns) {
    WidenedTile<kCodes, kRows> tile(by);
    for (int v = 0; v < kTileVectors; ++v) {
      const int at = column + v * kLanes;
      tile.scales[v] = load_scales(part.scales, by.scales, at);
      tile.offsets[v] = part.offsets == nullptr ? zero() : load(part.offsets + at);
      for (int r = 0; r < kRows; ++r) tile.sums[r][v] = load(sums + r * kPanelColumns + at);
    }
    const float* inputs = x;
    const float* codes = part.codes + column;
    for (std::int64_t i = 0; i < part.count; i += codes_per_word(kCodes)) {
      F words[kTileVectors];
      for (int v = 0; v < kTileVectors; ++v) words[v] = load(codes + v * kLanes);
      tile.add_word(words, inputs);
      inputs += codes_per_word(kCodes) * kRows;
      codes += kPanelColumns;
    }
    for (int v = 0; v < kTileVectors; ++v) {
      for (int r = 0; r < kRows; ++r) {
        store(sums + r * kPanelColumns + column + v * kLanes, tile.sums[r][v]);
      }
    }
  }
}

// x as floats [tile][...][height]: how many a row has for the first `inputs` inputs.
constexpr std::int64_t grouped_units(bool is_int4, std::int64_t group, std::int64_t inputs) {
  return is_int4 ? 2 * ((inputs + group - 1) / group) + inputs / 4 : inputs;
}

// The inputs [first, end) of a panel times a tile of rows. `ahead`: floats from weights to those
// that are prefetched meanwhile, or 0.
using AddParts = void (*)(const GroupPanels& weights, const float* panel, std::int64_t first,
                          std::int64_t end, std::int64_t ahead, const float* tile, float* sums);

template <bool kIsInt4, CodeType kCodes, int kRows>
void add_parts(const GroupPanels& weights, const float* panel, std::int64_t first, std::int64_t end,
               std::int64_t ahead, const float* tile, float* sums) {
  const Grouping by = weights.by;
  std::int64_t start = first / weights.group * weights.group;  // of the group
  if (start > weights.last_group) start = weights.last_group;
  const std::int64_t group_size = weights.head_size + weights.group * weights.input_size;
  const float* head = panel + start / weights.group * group_size;
  const float* x = tile + grouped_units(kIsInt4, weights.group, first) * kRows;
  while (first < end) {
    const std::int64_t group_end =
        start < weights.last_group ? start + weights.group : weights.inputs;
    const std::int64_t count = group_end - first < kPartInputs ? group_end - first : kPartInputs;
    const GroupPart part{head + weights.head_size + (first - start) * weights.input_size, head,
                         by.has_offsets ? head + weights.head_size - kPanelColumns : nullptr,
                         count};
    if (ahead != 0) {
      const float* next = (first == start ? head : part.codes) + ahead;
      const float* last = part.codes + count * weights.input_size + ahead;
      for (; next < last; next += kFloatsPerLine) {
        __builtin_prefetch(next, 0, kRows <= kGroupRowsOfL1 ? 3 : 2);
      }
    }
    if constexpr (kIsInt4) {
      int4_part<kRows>(part, by, x, sums);
      // Or gcc keeps the sums of all rows in registers from part to part, which products need.
      if constexpr (kRows > 4) __atomic_signal_fence(__ATOMIC_SEQ_CST);
      x += (2 + count / 4) * kRows;
    } else {
      widened_part<kCodes, kRows>(part, by, x, sums);
      x += count * kRows;
    }
    first += count;
    if (first == group_end) {
      start = group_end;
      head += group_size;
    }
  }
}

// For tiles of every height.
template <int... kRows>
struct GroupPartTable {
  static constexpr AddParts kInt4[] = {nullptr, add_parts<true, CodeType::kInt4, kRows>...};
  static constexpr AddParts kWidened[][sizeof...(kRows) + 1] = {
      {nullptr, add_parts<false, CodeType::kInt4, kRows>...},
      {nullptr, add_parts<false, CodeType::kInt8, kRows>...},
      {nullptr, add_parts<false, CodeType::kE4M3, kRows>...},
      {nullptr, add_parts<false, CodeType::kE2M1, kRows>...}};
};
template <bool kMany = kTileRowsMax == 12>
struct GroupParts : GroupPartTable<1, 2, 3, 4, 5, 6> {};
template <>
struct GroupParts<true> : GroupPartTable<1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12> {};

// x of a row for kInt4, into place r of a tile of so many rows.
inline void quantise_row(const float* x, const PackedLinear& weight, int height, int r, float* to) {
  constexpr std::int64_t kGroupMax = 128;
  constexpr std::uint32_t kSigns = 0x80808080U;
  const std::int64_t inputs = padded_inputs(weight.k);
  for (std::int64_t first = 0; first < inputs; first += weight.grouping.group) {
    const std::int64_t end = first + weight.grouping.group;
    const std::int64_t count = (end < weight.k ? end : weight.k) - first;
    const float scale = row_scale(x + first, count);
    const float inverse = scale > 0.0F ? 1.0F / scale : 0.0F;
    std::uint32_t units[kGroupMax / 4 + kLanes];
    const std::int64_t num_units = ((end < inputs ? end : inputs) - first) / 4;
    const std::uint32_t ones = 0x01010101U;
    float one_each = 0.0F;
    __builtin_memcpy(&one_each, &ones, sizeof(ones));
    F sums = zero();
    std::int32_t sum = 0;
    for (std::int64_t u = 0; u < num_units; u += kLanes) {
      const F some = units_at<WeightType::kInt8>(x + first, count, u, inverse);
      store(reinterpret_cast<float*>(units + u), some);
      sums = dot_int8(some, broadcast(one_each), sums);
      sum -= 4 * 128 * kLanes;
    }
    sum += static_cast<std::int32_t>(sum_lanes(to_float(sums)));
    to[r] = scale;
    float* unit = to + 2 * height + r;
    for (std::int64_t u = 0; u < num_units; ++u, unit += height) {
      const std::uint32_t bytes = units[u] ^ kSigns;
      __builtin_memcpy(unit, &bytes, sizeof(bytes));
    }
    // Codes are products' factors as they are: from 0 instead of from -8.
    sum *= -8;
    __builtin_memcpy(to + height + r, &sum, sizeof(sum));
    to += (2 + num_units) * height;
  }
}

// x for a weight, tile by tile.
inline void fill_grouped_tiles(Stream& stream, const LinearArgs& args, const RowTiles& tiles,
                               std::int64_t row_units, float* units) {
  if (args.weight.type == WeightType::kWidened) {
    interleave_rows<WeightType::kWidened>(stream, args, row_units, tiles, units, nullptr);
    return;
  }
  stream.pool().parallel_for(static_cast<int>(tiles.m), [&](int row, int) {
    int tile = 0;
    while (tiles.start(tile + 1) <= row) ++tile;
    const std::int64_t first = tiles.start(tile);
    quantise_row(args.x.row(row), args.weight, tiles.height(tile), static_cast<int>(row - first),
                 units + first * row_units);
  });
}

inline void grouped_linear(Stream& stream, const LinearArgs& args) {
  const PackedLinear& weight = args.weight;
  const GroupPanels weights(weight);
  const std::int64_t m = args.x.rows;
  const RowTiles tiles{m, static_cast<int>((m + kTileRowsMax - 1) / kTileRowsMax)};
  const int num_threads = stream.pool().num_threads();
  const auto num_panels = static_cast<int>(padded_columns(weight.n) / kPanelColumns);
  int each = kGroupPanels;
  while (each > 1 && num_panels < 2 * num_threads * each) --each;
  const bool is_int4 = weight.type == WeightType::kInt4;
  const std::int64_t row_units = grouped_units(is_int4, weights.group, weights.inputs);
  const std::int64_t sums_size = m * kPanelColumns;  // of a panel
  auto* units = static_cast<float*>(stream.scratch(
      sizeof(float) * static_cast<std::uint64_t>(m * row_units + num_threads * each * sums_size)));
  float* sums_of_all = units + m * row_units;
  fill_grouped_tiles(stream, args, tiles, row_units, units);
  const AddParts* add = is_int4 ? GroupParts<>::kInt4
                                : GroupParts<>::kWidened[static_cast<int>(weight.grouping.codes)];
  const int num_tasks = (num_panels + each - 1) / each;
  stream.pool().parallel_for(num_tasks, [&](int task, int worker) {
    const int first_panel = task * each;
    const int count = num_panels - first_panel < each ? num_panels - first_panel : each;
    float* sums = sums_of_all + worker * each * sums_size;
    __builtin_memset(sums, 0, sizeof(float) * static_cast<std::uint64_t>(count * sums_size));
    for (std::int64_t first = 0; first < weights.inputs; first += kGroupBlockInputs) {
      const std::int64_t behind = first + kGroupBlockInputs;
      const std::int64_t end = behind < weights.inputs ? behind : weights.inputs;
      // To the next block; at the end to that of the task that the worker will most likely take.
      const std::int64_t to_next = behind < weights.inputs ? weights.floats(kGroupBlockInputs)
                                   : task + num_threads < num_tasks
                                       ? num_threads * each * weights.size - weights.floats(first)
                                       : 0;
      for (int p = 0; p < count; ++p) {
        const float* panel = weights.panels + (first_panel + p) * weights.size;
        for (int tile = 0; tile < tiles.count; ++tile) {
          const std::int64_t row = tiles.start(tile);
          add[tiles.height(tile)](weights, panel, first, end, tile == 0 ? to_next : 0,
                                  units + row * row_units,
                                  sums + p * sums_size + row * kPanelColumns);
        }
      }
    }
    finish_panels<WeightType::kF32>({args, nullptr, nullptr, nullptr}, first_panel, count,
                                    {sums, sums_size});
  });
}

}  // namespace lmtp::kernels::LMTP_KERNELS_ISA
