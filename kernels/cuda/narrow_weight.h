// The layout of weights of 8 bits and less in a device's memory (WeightType kInt8, kInt4,
// kWidened).
//
// kInt8: tiles of 16 outputs by 32 inputs, 512 bytes each, in the order of mma.m16n8k32's operands.
// With g = lane / 4 and t = lane % 4, the words of a lane, four bytes each, are
//   0  row g, columns 8t to 8t+3      1  row g+8, the same
//   2  row g, columns 8t+4 to 8t+7    3  row g+8, the same
// As in fragment_tile.h, A and B count the columns alike, and both take it as it lies. Behind the
// tiles comes an f32 scale for each output.
//
// By groups: the tiles of fragment_tile.h, a multiple of kStepTiles for each 16 outputs. A lane's
// codes of a tile are one word of 4 bits or two of 8, and those of four or two tiles in a row one
// vector; a warp's vectors lie together. The two codes of a pair are 16 bits apart, so that one
// instruction masks both: pair p of 4 bits at bit 4p, pair p of 8 bits in word p/2 at bit 8(p%2).
// Behind the codes for each 16 outputs and group the scales, as they are kept, then likewise f32
// offsets where there are any: those of the outputs g and g+8 are neighbours. A tile's inputs lie
// in one group, since groups are multiples of kTileSide.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/fragment_tile.h"
#include "kernels/device_types.h"
#include "kernels/linear.h"
#include "lmtp/base/check.h"

namespace lmtp::kernels::cuda {

inline constexpr int kByteTileInputs = 32;
static_assert(kGroupMin % kTileSide == 0);

constexpr std::int64_t num_byte_tiles(std::int64_t inputs) {
  return (inputs + kByteTileInputs - 1) / kByteTileInputs;
}

// Offset of a byte in its tile of kInt8.
constexpr int offset_in_byte_tile(int row, int column) {
  const int lane = row % 8 * 4 + column / 8;
  return lane * 16 + (row / 8 + column % 8 / 4 * 2) * 4 + column % 4;
}
constexpr std::int64_t offset_in_byte_matrix(std::int64_t row, std::int64_t column,
                                             std::int64_t columns) {
  const std::int64_t tile = row / kTileSide * num_byte_tiles(columns) + column / kByteTileInputs;
  return tile * kTileSide * kByteTileInputs +
         offset_in_byte_tile(static_cast<int>(row % kTileSide),
                             static_cast<int>(column % kByteTileInputs));
}

// Where the scale of a row is among those of its tile's rows, by groups.
constexpr std::int64_t place_of_scale(std::int64_t row) { return row % 8 * 2 + row % 16 / 8; }

// Tiles of inputs whose codes, and scales, are asked for together.
inline constexpr int kStepTiles = 4;
constexpr std::int64_t num_code_tiles(std::int64_t k) {
  return (num_tiles(k) + kStepTiles - 1) / kStepTiles * kStepTiles;
}
// Those of a vector.
constexpr int tiles_of_vector(int bits) { return 16 / bits; }

// Where a code is among those of a weight [n, k] by groups, counted in codes.
constexpr std::int64_t offset_of_code(int bits, std::int64_t row, std::int64_t column,
                                      std::int64_t k) {
  const int tiles = tiles_of_vector(bits);
  const std::int64_t tile = row / kTileSide * num_code_tiles(k) + column / kTileSide;
  const std::int64_t lane = row % 8 * 4 + column % kTileSide / 4;
  const std::int64_t pair = row % kTileSide / 8 + column % 4 / 2 * 2;
  const std::int64_t word = ((tile / tiles * kWarpSize + lane) * tiles + tile % tiles) * bits / 4 +
                            (bits == 4 ? 0 : pair / 2);
  return bits == 4 ? word * 8 + pair + column % 2 * 4 : word * 4 + pair % 2 + column % 2 * 2;
}

// In bytes from a weight's begin; all are multiples of 16. REQUIRES: not a type of plain numbers.
struct NarrowLayout {
  std::int64_t scales_at = 0;
  std::int64_t offsets_at = 0;
  std::int64_t num_bytes = 0;
};
constexpr NarrowLayout narrow_layout(WeightType type, const Grouping& by, std::int64_t n,
                                     std::int64_t k) {
  NarrowLayout layout;
  if (type == WeightType::kInt8) {
    layout.scales_at = num_tiles(n) * num_byte_tiles(k) * kTileSide * kByteTileInputs;
    layout.offsets_at = layout.scales_at + num_tiles(n) * kTileSide * 4;
    layout.num_bytes = layout.offsets_at;
    return layout;
  }
  const std::int64_t scales = num_tiles(n) * num_groups(by, k) * kTileSide;
  layout.scales_at = num_tiles(n) * num_code_tiles(k) * kTileElements * code_bits(by.codes) / 8;
  layout.offsets_at = layout.scales_at + scales * element_size(by.scales);
  layout.num_bytes = layout.offsets_at + (by.has_offsets ? scales * 4 : 0);
  return layout;
}

// A weight by groups, as kernels read it.
struct GroupedWeight {
  const void* scales = nullptr;
  const Words2* offsets = nullptr;  // null: none
  ElementType scale_type = ElementType::kBF16;
  int base = 0;  // that codes are less
  int num_groups = 1;
  std::uint32_t group_factor = 0;  // of group_of()

  // The group of a tile of inputs, without a division.
  constexpr int group_of(int tile) const {
    return static_cast<int>(std::uint64_t{static_cast<std::uint32_t>(tile)} * group_factor >> 31);
  }
};
// 2^31 / tiles, rounded up by e / tiles, e < tiles: group_of() is more than the quotient by
// tile * e / tiles / 2^31, and as long as tile * e < 2^31 that reaches no whole number. Where there
// is one group, 0.
inline constexpr std::int64_t kTwo31 = std::int64_t{1} << 31;
constexpr std::uint32_t group_factor(std::int64_t tiles) {
  return static_cast<std::uint32_t>((kTwo31 + tiles - 1) / tiles);
}
inline GroupedWeight grouped_weight(const void* weight, WeightType type, const Grouping& by,
                                    std::int64_t n, std::int64_t k) {
  const NarrowLayout layout = narrow_layout(type, by, n, k);
  const auto* bytes = static_cast<const unsigned char*>(weight);
  const std::int64_t groups = num_groups(by, k);
  const std::int64_t tiles = by.group / kTileSide;  // of a group
  const std::uint32_t factor = groups == 1 ? 0 : group_factor(tiles);
  LMTP_CHECK(groups == 1 || num_tiles(k) * (factor * tiles - kTwo31) < kTwo31, k, by.group);
  return {.scales = bytes + layout.scales_at,
          .offsets =
              by.has_offsets ? reinterpret_cast<const Words2*>(bytes + layout.offsets_at) : nullptr,
          .scale_type = by.scales,
          .base = code_base(by),
          .num_groups = static_cast<int>(groups),
          .group_factor = factor};
}

}  // namespace lmtp::kernels::cuda
