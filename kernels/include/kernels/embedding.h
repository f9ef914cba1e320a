// Rows of an embedding table, gathered from the packed panels of the tied output head, so that the
// table is held once.
#pragma once

#include <cstdint>

#include "kernels/linear.h"
#include "kernels/matrix.h"
#include "kernels/stream.h"

namespace lmtp::kernels {

struct EmbeddingArgs {
  const std::int32_t* ids = nullptr;        // [m], each in [0, table.n)
  PackedLinear table;                       // [vocabulary, width]; without panels: all zero
  const std::int32_t* positions = nullptr;  // [m]; used where position_table is not empty
  Matrix<const float> position_table = {};  // [context, width] f32, or empty
  // Added to a position before it is looked up: OPT's table begins with two rows of another use.
  std::int32_t position_offset = 0;
  float scale = 1.0F;  // of the table's row
  Matrix<float> y;     // [m, width] f32
};

// y[i] = scale * table[ids[i]] + position_table[positions[i] + position_offset].
void embedding(Stream& stream, const EmbeddingArgs& args);

}  // namespace lmtp::kernels
