// What the kernels of the linear know of their weights, by a tag: BF16, F16 and Int8 as they are
// multiplied; Narrow<T, Codes>, which lie as codes and are widened to T in registers.
#pragma once

#include <device_primitives.cuh>

#include <bit>
#include <cstdint>
#include <type_traits>

#include "cuda/linear_common.cuh"
#include "cuda/narrow_weight.h"

namespace lmtp::kernels::cuda {

struct Int4Codes {};
struct Int8Codes {};
struct E4M3Codes {};

template <typename T, typename Codes>
struct Narrow {};

template <typename T>
struct Operands {
  using Number = T;
  using Sum = float;
  static constexpr bool kReadsFloats = true;  // few rows of x are rounded where they are read
};
template <>
struct Operands<Int8> {
  using Number = Int8;
  using Sum = std::int32_t;
  static constexpr bool kReadsFloats = false;  // a row's scale comes first
};
template <typename T, typename Codes>
struct Operands<Narrow<T, Codes>> : Operands<T> {};

template <typename T>
inline constexpr bool kIsNarrow = false;
template <typename T, typename Codes>
inline constexpr bool kIsNarrow<Narrow<T, Codes>> = true;

template <typename T>
using NumberOf = typename Operands<T>::Number;
template <typename T>
using SumOf = typename Operands<T>::Sum;
// Sums of whole numbers, in which no order shows.
template <typename T>
inline constexpr bool kIsExact = std::is_same_v<SumOf<T>, std::int32_t>;

// The product of a tile of weights and of eight rows.
template <typename T>
__device__ void multiply_tile(SumOf<T> (&sums)[4], const Words4& a, std::uint32_t b0,
                              std::uint32_t b1) {
  if constexpr (std::is_same_v<NumberOf<T>, Int8>) {
    mma_m16n8k32(sums, a, b0, b1);
  } else {
    mma_m16n8k16<NumberOf<T>>(sums, a, b0, b1);
  }
}

// Scales of whole numbers: those of a row of x and of an output, where there is such a one.
template <typename T>
__device__ float row_scale_of(const LinearParams& p, std::int64_t row) {
  if constexpr (std::is_same_v<NumberOf<T>, Int8>) {
    return load_where(row < p.args.m, p.row_scales + row);
  } else {
    return 1.0F;
  }
}
template <typename T>
__device__ float output_scale_of(const LinearParams& p, std::int64_t n) {
  if constexpr (std::is_same_v<NumberOf<T>, Int8>) {
    return load_where(n < p.args.n, p.output_scales + n);
  } else {
    return 1.0F;
  }
}

// What a sum of products stands for. The operations of kernels/cpu on whole numbers.
template <typename T>
__device__ float value_of(SumOf<T> sum, float row_scale, float output_scale) {
  if constexpr (std::is_same_v<NumberOf<T>, Int8>) {
    return static_cast<float>(sum) * (row_scale * output_scale);
  } else {
    return sum;
  }
}

// One warp's tiles of weights, from that of output tile `first` on: load() asks for a lane's part,
// zeros where it is not wanted, and operand() makes of it what is multiplied.
template <typename T>
struct WeightTiles {
  using Loaded = Words4;

  const Words4* weights;  // this lane's of the first
  int k_tiles;

  __device__ WeightTiles(const LinearParams& p, int first)
      : weights(static_cast<const Words4*>(p.args.weight) +
                std::int64_t{first} * p.k_tiles * kTileVectors + lane_index()),
        k_tiles(p.k_tiles) {}

  __device__ Loaded load(bool wanted, int output_tile, int tile) const {
    const std::int64_t at = std::int64_t{output_tile} * k_tiles + tile;
    return load_once_where(wanted, weights + at * kTileVectors);
  }
  __device__ const Words4& operand(const Loaded& loaded) const { return loaded; }
};

// The codes of a lane: of a tile eight, in the order of operand A.
template <typename Codes>
struct CodesOfLane {
  using Words = Words2;
  __device__ static std::uint32_t code(const Words& words, int index) {
    return words.words[index / 4] >> (8 * (index % 4)) & 255U;
  }
};
template <>
struct CodesOfLane<Int4Codes> {
  using Words = std::uint32_t;
  __device__ static std::uint32_t code(Words words, int index) {
    return words >> (4 * index) & 15U;
  }
};

// A whole number below 2^23, in fewer steps than a conversion takes.
__device__ inline float small_number(std::uint32_t value, int less) {
  return std::bit_cast<float>(0x4B000000U | value) - static_cast<float>(0x800000 + less);
}

// A code as a number; `base` is what 4 bits are less.
template <typename Codes>
__device__ float code_number(std::uint32_t code, int base) {
  if constexpr (std::is_same_v<Codes, Int4Codes>) {
    return small_number(code, base);
  } else if constexpr (std::is_same_v<Codes, Int8Codes>) {
    return small_number(code ^ 128U, 128);
  } else {
    // e4m3 is half precision shifted by one bit and divided by 256.
    return widen<F16>(static_cast<std::uint16_t>((code & 128U) << 8 | (code & 127U) << 7)) * 256.0F;
  }
}

// The numbers of two scales of a type: of 16 bits both in the first word.
__device__ inline Floats2 scale_numbers(const Words2& words, ElementType type) {
  if (type == ElementType::kF32) {
    return {{std::bit_cast<float>(words.words[0]), std::bit_cast<float>(words.words[1])}};
  }
  const auto low = static_cast<std::uint16_t>(words.words[0]);
  const auto high = static_cast<std::uint16_t>(words.words[0] >> 16);
  if (type == ElementType::kF16) return {{widen<F16>(low), widen<F16>(high)}};
  return {{widen<BF16>(low), widen<BF16>(high)}};
}

template <typename T, typename Codes>
struct WeightTiles<Narrow<T, Codes>> {
  using Words = typename CodesOfLane<Codes>::Words;
  struct Loaded {
    Words codes;
    Words2 scales;
    Words2 offsets;
  };

  const LinearParams& p;
  int first;

  __device__ WeightTiles(const LinearParams& params, int first_tile)
      : p(params), first(first_tile) {}

  __device__ Loaded load(bool wanted, int output_tile, int tile) const {
    const GroupedWeight& by = p.grouped;
    const std::int64_t row_of_tiles = first + output_tile;
    Loaded loaded;
    loaded.codes =
        load_once_where(wanted, static_cast<const Words*>(p.args.weight) +
                                    (row_of_tiles * p.k_tiles + tile) * kWarpSize + lane_index());
    const std::int64_t at =
        (row_of_tiles * by.num_groups + tile / by.tiles_of_group) * 8 + lane_index() / 4;
    const bool is_wide = by.scale_type == ElementType::kF32;
    loaded.scales = load_where(wanted && is_wide, static_cast<const Words2*>(by.scales) + at);
    const std::uint32_t both =
        load_where(wanted && !is_wide, static_cast<const std::uint32_t*>(by.scales) + at);
    loaded.scales.words[0] |= both;
    loaded.offsets = load_where(wanted && by.offsets != nullptr, by.offsets + at);
    return loaded;
  }

  // As kernels/grouping.h has it, rounded once more to T.
  __device__ Words4 operand(const Loaded& loaded) const {
    const Floats2 scales = scale_numbers(loaded.scales, p.grouped.scale_type);
    const Floats2 offsets = scale_numbers(loaded.offsets, ElementType::kF32);
    Words4 a;
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      const auto number = [&](int index) {
        return fmaf(
            code_number<Codes>(CodesOfLane<Codes>::code(loaded.codes, index), p.grouped.base),
            scales.values[word % 2], offsets.values[word % 2]);
      };
      a.words[word] = round_pair<T>(number(2 * word), number(2 * word + 1));
    }
    return a;
  }
};

}  // namespace lmtp::kernels::cuda
