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
  PackedLinear table;                       // [vocabulary, width]
  const std::int32_t* positions = nullptr;  // [m]; used where position_table is not empty
  Matrix<const float> position_table = {};  // [context, width] f32, or empty
  Matrix<float> y;                          // [m, width] f32
};

// y[i] = table[ids[i]] + position_table[positions[i]].
void embedding(Stream& stream, const EmbeddingArgs& args);

}  // namespace lmtp::kernels
