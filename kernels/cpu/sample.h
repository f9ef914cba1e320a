// The op sample in plain code for every instruction set, over its reductions of rows.
#pragma once

#include "kernels/sample.h"
#include "row_ops.h"

namespace lmtp::kernels::plain {

// A task a row. Memory: Stream::scratch.
void sample(Stream& stream, const SampleArgs& args, const RowOps& ops);

}  // namespace lmtp::kernels::plain
