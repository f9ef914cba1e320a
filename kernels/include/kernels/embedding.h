// Rows of an embedding table, gathered from the packed panels of the tied output head, so that the
// table is held once.
#pragma once

#include <cstdint>

#include "kernels/linear.h"
#include "kernels/matrix.h"
#include "kernels/stream.h"

namespace lmtp::kernels {

struct EmbeddingArgs {
  const std::int32_t* ids = nullptr;  // [m], each a row of the table
  // The table has the ids [first_id, first_id + table.n). A part of a vocabulary: rows of y whose
  // ids it does not have are 0, whatever their position.
  std::int32_t first_id = 0;
  bool is_part = false;
  PackedLinear table;                       // [vocabulary, width]; without panels: all zero
  const std::int32_t* positions = nullptr;  // [m]; used where position_table is not empty
  Matrix<const float> position_table = {};  // [context, width] f32, or empty
  // Added to a position before it is looked up: OPT's table begins with two rows of another use.
  std::int32_t position_offset = 0;
  float scale = 1.0F;  // of the table's row
  Matrix<float> y;     // [m, width] f32
};

// y[i] = scale * table[ids[i] - first_id] + position_table[positions[i] + position_offset].
void embedding(Stream& stream, const EmbeddingArgs& args);

}  // namespace lmtp::kernels
