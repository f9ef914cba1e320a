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
// By groups: fragment_tile.h's order of elements, of 4 or 8 bits each, so that what a lane widens
// of a tile is one word or two. Behind them for each 16 outputs and group the scales, as they are
// kept, then likewise f32 offsets where there are any: those of the outputs g and g+8 are
// neighbours. A tile's inputs lie in one group, since groups are multiples of kTileSide.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/fragment_tile.h"
#include "kernels/device_types.h"
#include "kernels/linear.h"

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

constexpr int code_bits(CodeType codes) { return codes == CodeType::kInt4 ? 4 : 8; }

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
  layout.scales_at = num_tiles(n) * num_tiles(k) * kTileElements * code_bits(by.codes) / 8;
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
  int tiles_of_group = 1;
};
inline GroupedWeight grouped_weight(const void* weight, WeightType type, const Grouping& by,
                                    std::int64_t n, std::int64_t k) {
  const NarrowLayout layout = narrow_layout(type, by, n, k);
  const auto* bytes = static_cast<const unsigned char*>(weight);
  const std::int64_t groups = num_groups(by, k);
  return {.scales = bytes + layout.scales_at,
          .offsets =
              by.has_offsets ? reinterpret_cast<const Words2*>(bytes + layout.offsets_at) : nullptr,
          .scale_type = by.scales,
          .base = code_base(by),
          .num_groups = static_cast<int>(groups),
          .tiles_of_group = static_cast<int>(groups == 1 ? num_tiles(k) : by.group / kTileSide)};
}

}  // namespace lmtp::kernels::cuda
