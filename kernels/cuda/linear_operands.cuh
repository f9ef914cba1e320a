// What the kernels of the linear know of their weights, by a tag: BF16, F16 and Int8 as they are
// multiplied; Narrow<T, Codes, Scales>, which lie as codes and are widened to T in registers.
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
struct E2M1Codes {};

// What scales codes may have: of T without offsets, or any.
struct ScalesOfType {};
struct AnyScales {};

template <typename T, typename Codes, typename Scales>
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
template <typename T, typename Codes, typename Scales>
struct Operands<Narrow<T, Codes, Scales>> : Operands<T> {};

template <typename T>
inline constexpr bool kIsNarrow = false;
template <typename T, typename Codes, typename Scales>
inline constexpr bool kIsNarrow<Narrow<T, Codes, Scales>> = true;

template <typename T>
inline constexpr bool kHasAnyScales = false;
template <typename T, typename Codes>
inline constexpr bool kHasAnyScales<Narrow<T, Codes, AnyScales>> = true;

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

// One warp's tiles of weights, from that of output tile `first` on: load() asks for a lane's part
// of kTiles tiles of inputs, zeros where they are not wanted, or not before `end`; prepare() what
// came, once; and operand() makes of tile i of them what is multiplied.
template <typename T>
struct WeightTiles {
  static constexpr int kTiles = 1;
  using Loaded = Words4;

  const Words4* weights;  // this lane's of the first
  int k_tiles;

  __device__ WeightTiles(const LinearParams& p, int first)
      : weights(static_cast<const Words4*>(p.args.weight) +
                std::int64_t{first} * p.k_tiles * kTileVectors + lane_index()),
        k_tiles(p.k_tiles) {}

  __device__ Loaded load(bool wanted, int output_tile, int tile, int /*end*/) const {
    const std::int64_t at = std::int64_t{output_tile} * k_tiles + tile;
    return load_once_where(wanted, weights + at * kTileVectors);
  }
  __device__ void prepare(Loaded& /*loaded*/) const {}
  __device__ const Words4& operand(const Loaded& loaded, int /*i*/) const { return loaded; }
};

// Pairs of T that are numbers of 16 bits.
template <typename T>
struct PairsOf {
  // Of magnitudes below 128: the lowest bit of what follows stands for 1.
  static constexpr std::uint32_t kWhole = 0x43004300U;  // 128
  static constexpr std::uint32_t kOne = 0x3F803F80U;
  // e4m3 is T shifted, and divided by what its exponents differ.
  static constexpr int kShift = 4;
  static constexpr std::uint32_t kFactor = 0x7B807B80U;  // 2^120
  // The same of e2m1.
  static constexpr int kShift4 = 6;
  static constexpr std::uint32_t kFactor4 = 0x7E807E80U;  // 2^126
};
template <>
struct PairsOf<F16> {
  static constexpr std::uint32_t kWhole = 0x64006400U;  // 1024
  static constexpr std::uint32_t kOne = 0x3C003C00U;
  static constexpr int kShift = 1;
  static constexpr std::uint32_t kFactor = 0x5C005C00U;  // 2^8
  static constexpr int kShift4 = 9;
  static constexpr std::uint32_t kFactor4 = 0x74007400U;  // 2^14
};
inline constexpr std::uint32_t kSigns = 0x80008000U;

// The numbers of pair p of a lane's codes of a tile (narrow_weight.h), as T holds all of them;
// `base` is what 4 bits are less.
template <typename T, typename Codes>
__device__ std::uint32_t code_pair(const std::uint32_t* words, int p, int base) {
  using Pairs = PairsOf<T>;
  if constexpr (std::is_same_v<Codes, Int4Codes>) {
    const std::uint32_t whole = mask_and_set(words[0] >> (4 * p), 0x000F000FU, Pairs::kWhole);
    const auto bases = static_cast<std::uint32_t>(base) * 0x00010001U;
    return fma_pairs<T>(whole, Pairs::kOne, (Pairs::kWhole | kSigns) + bases);
  } else if constexpr (std::is_same_v<Codes, Int8Codes>) {
    // The lower seven bits, less 128 where the highest is set.
    const std::uint32_t bytes = words[p / 2] >> (8 * (p % 2));
    return fma_pairs<T>(mask_and_set(bytes, 0x007F007FU, Pairs::kWhole), Pairs::kOne,
                        mask_and_set(bytes, 0x00800080U, Pairs::kWhole | kSigns));
  } else if constexpr (std::is_same_v<Codes, E2M1Codes>) {
    const std::uint32_t codes = words[0] >> (4 * p);
    const std::uint32_t shifted =
        mask_and_set(codes << 12, kSigns, (codes & 0x00070007U) << Pairs::kShift4);
    return fma_pairs<T>(shifted, Pairs::kFactor4, kSigns);  // as below
  } else {
    const std::uint32_t bytes = words[p / 2] << (8 - 8 * (p % 2));  // in the upper halves
    constexpr std::uint32_t kMagnitudes = (0x7F007F00U >> Pairs::kShift) & ~kSigns;
    const std::uint32_t shifted = mask_and_set(bytes, kSigns, bytes >> Pairs::kShift & kMagnitudes);
    return fma_pairs<T>(shifted, Pairs::kFactor, kSigns);  // to -0: zeros keep their signs
  }
}

template <typename Codes>
inline constexpr int kCodeBits =
    std::is_same_v<Codes, Int4Codes> || std::is_same_v<Codes, E2M1Codes> ? 4 : 8;

// The number of a scale of a type, from the 16 bits or the word that it may be; without a branch.
__device__ inline float scale_number(std::uint32_t bits16, std::uint32_t bits32, ElementType type) {
  const auto narrow = static_cast<std::uint16_t>(bits16);
  const float of_16 = type == ElementType::kF16 ? widen<F16>(narrow) : widen<BF16>(narrow);
  return type == ElementType::kF32 ? std::bit_cast<float>(bits32) : of_16;
}

// Scales of a step, a tile's in lane t = its place of each four lanes: those of outputs g and g+8.
template <typename T, typename Scales>
struct StepScales {
  std::uint32_t both = 0;

  __device__ void load(const GroupedWeight& by, bool wanted, std::int64_t at) {
    both = load_where(wanted, static_cast<const std::uint32_t*>(by.scales) + at);
  }
  __device__ void prepare(ElementType /*type*/) {}
  // Pair p has the numbers of output g, or of g+8 where p is odd. A product's exact value is a
  // number of f32 (4 or 8 bits by 8 or 11; the smallest of bf16 is 2^-133 * 2^-9), or beyond all
  // numbers of both types: rounded here it is what f32 rounds to T. Added to +0 as there.
  __device__ Words4 widened(const Words4& pairs, int i) const {
    const std::uint32_t scales = shuffle_of_four(both, i);
    const std::uint32_t pair[2] = {lower_twice(scales), upper_twice(scales)};
    Words4 a;
#pragma unroll
    for (int p = 0; p < 4; ++p) a.words[p] = fma_pairs<T>(pairs.words[p], pair[p % 2], 0);
    return a;
  }
};
template <typename T>
struct StepScales<T, AnyScales> {
  Words2 scales = {};
  Words2 offsets = {};

  __device__ void load(const GroupedWeight& by, bool wanted, std::int64_t at) {
    const bool is_wide = by.scale_type == ElementType::kF32;
    scales = load_where(wanted && is_wide, static_cast<const Words2*>(by.scales) + at);
    scales.words[0] |=
        load_where(wanted && !is_wide, static_cast<const std::uint32_t*>(by.scales) + at);
    offsets = load_where(wanted && by.offsets != nullptr, by.offsets + at);
  }
  // Makes f32 of them.
  __device__ void prepare(ElementType type) {
    const float low = scale_number(scales.words[0], scales.words[0], type);
    const float high = scale_number(scales.words[0] >> 16, scales.words[1], type);
    scales = {{std::bit_cast<std::uint32_t>(low), std::bit_cast<std::uint32_t>(high)}};
  }
  // As kernels/grouping.h has it, rounded once more to T.
  __device__ Words4 widened(const Words4& pairs, int i) const {
    const auto of_tile = [i](std::uint32_t bits) {
      return std::bit_cast<float>(shuffle_of_four(bits, i));
    };
    const float factor[2] = {of_tile(scales.words[0]), of_tile(scales.words[1])};
    const float offset[2] = {of_tile(offsets.words[0]), of_tile(offsets.words[1])};
    Words4 a;
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      const std::uint32_t pair = pairs.words[p];
      const auto number = [&](std::uint32_t bits) {
        return fmaf(widen<T>(static_cast<std::uint16_t>(bits)), factor[p % 2], offset[p % 2]);
      };
      a.words[p] = round_pair<T>(number(pair), number(pair >> 16));
    }
    return a;
  }
};

template <typename T, typename Codes, typename Scales>
struct WeightTiles<Narrow<T, Codes, Scales>> {
  static constexpr int kTiles = kStepTiles;
  static constexpr int kTilesOfVector = tiles_of_vector(kCodeBits<Codes>);
  static constexpr int kVectors = kStepTiles / kTilesOfVector;
  struct Loaded {
    Words4 codes[kVectors];
    StepScales<T, Scales> scales;
  };

  const GroupedWeight& by;
  const Words4* codes;     // this lane's of the first
  int vectors_of_row;      // of an output tile, of all lanes
  std::int64_t scales_at;  // of this lane's outputs, of the first group

  __device__ WeightTiles(const LinearParams& p, int first)
      : by(p.grouped),
        vectors_of_row((p.k_tiles + kStepTiles - 1) / kStepTiles * kVectors * kWarpSize),
        scales_at(std::int64_t{first} * by.num_groups * 8 + lane_index() / 4) {
    codes = static_cast<const Words4*>(p.args.weight) + std::int64_t{first} * vectors_of_row +
            lane_index();
  }

  // REQUIRES: tile is a multiple of kStepTiles.
  __device__ Loaded load(bool wanted, int output_tile, int tile, int end) const {
    const Words4* from =
        codes + std::int64_t{output_tile} * vectors_of_row + tile * (kWarpSize / kTilesOfVector);
    Loaded loaded;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      loaded.codes[v] = load_once_where(wanted, from + v * kWarpSize);
    }
    const int mine = tile + lane_index() % kStepTiles;
    loaded.scales.load(
        by, wanted && mine < end,
        scales_at + (std::int64_t{output_tile} * by.num_groups + by.group_of(mine)) * 8);
    return loaded;
  }

  __device__ void prepare(Loaded& loaded) const { loaded.scales.prepare(by.scale_type); }
  // By all lanes of the warp.
  __device__ Words4 operand(const Loaded& loaded, int i) const {
    constexpr int kWords = 4 / kTilesOfVector;
    const std::uint32_t* words =
        loaded.codes[i / kTilesOfVector].words + i % kTilesOfVector * kWords;
    Words4 pairs;
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      pairs.words[pair] = code_pair<T, Codes>(words, pair, by.base);
    }
    return loaded.scales.widened(pairs, i);
  }
};

}  // namespace lmtp::kernels::cuda
