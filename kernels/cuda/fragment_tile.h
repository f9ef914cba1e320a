// The layout of matrices of bf16 or f16 in a device's memory: weights, rounded inputs, keys and
// values (these by pairs of tokens: kv_store.h).
//
// A tile is 16 rows by 16 columns, 512 bytes: what a lane of mma.m16n8k16 needs of it lies
// together, so that a warp loads a whole tile with one 16-byte load a lane: coalesced from global
// memory, without bank conflicts from shared memory, and without ldmatrix.
// With g = lane / 4 and t = lane % 4, the words (pairs of elements) of a lane are
//   0  row g, columns 4t, 4t+1      1  row g+8, the same
//   2  row g, columns 4t+2, 4t+3    3  row g+8, the same
// As operand A these are the four words of its fragment. As operand B, transposed, words 0 and 2
// are the fragment of the rows 0 to 7, words 1 and 3 that of the rows 8 to 15. The columns are the
// inputs that a product sums over; 4t, 4t+1, 4t+2, 4t+3 stand where the instruction counts
// 2t, 2t+1, 2t+8, 2t+9: in A and B alike, so that the sum is over the same pairs.
//
// A matrix [rows, columns] is [ceil(rows / 16)][ceil(columns / 16)] tiles, what is missing zero.
#pragma once

#include <cstdint>

namespace lmtp::kernels::cuda {

inline constexpr int kTileSide = 16;
inline constexpr int kTileElements = kTileSide * kTileSide;
// Words4 of a tile: one a lane.
inline constexpr int kTileVectors = 32;

constexpr std::int64_t num_tiles(std::int64_t rows_or_columns) {
  return (rows_or_columns + kTileSide - 1) / kTileSide;
}

// Offset of the element (row, column) in its tile, in elements.
constexpr int offset_in_tile(int row, int column) {
  const int lane = row % 8 * 4 + column / 4;
  const int word = row / 8 + column % 4 / 2 * 2;
  return lane * 8 + word * 2 + column % 2;
}

// Offset of the element (row, column) in a matrix of `columns` columns, in elements.
constexpr std::int64_t offset_in_matrix(std::int64_t row, std::int64_t column,
                                        std::int64_t columns) {
  const std::int64_t tile = row / kTileSide * num_tiles(columns) + column / kTileSide;
  return tile * kTileElements +
         offset_in_tile(static_cast<int>(row % kTileSide), static_cast<int>(column % kTileSide));
}

}  // namespace lmtp::kernels::cuda
