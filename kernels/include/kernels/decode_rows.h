// Rows of decode steps that stay on a device from step to step: what is to be another is written
// there, and one launch makes a step's arrays of it.
#pragma once

#include <cstdint>

#include "kernels/sample.h"
#include "kernels/stream.h"
#include "lmtp/base/ids.h"

namespace lmtp::kernels {

// words[at] becomes `value`.
struct WordChange {
  std::uint32_t at = 0;
  std::uint32_t value = 0;
};

struct AdvanceRowsArgs {
  std::uint32_t* words = nullptr;       // what the changes are written to before all else
  const WordChange* changes = nullptr;  // [num_changes], of distinct words
  std::int64_t num_changes = 0;
  // Among the words: of row r the input token, or ~i where records[i] has it; its position, which
  // is one more afterwards; and, from r * table_stride, the blocks of its sequence, kBlockSize
  // tokens each.
  const std::int32_t* tokens = nullptr;        // [num_rows]
  std::int32_t* next_positions = nullptr;      // [num_rows]
  const std::int32_t* block_tables = nullptr;  // [num_rows, table_stride]
  std::int64_t table_stride = 0;
  const SampleRecord* records = nullptr;
  std::int32_t num_rows = 0;
  // The step's arrays. Behind the rows come those of no stream, whose results nobody looks at:
  // token 0 at position 0, written to the slots of block 0 in turn (which are not distinct then),
  // while their tables are what the places had last.
  std::int32_t num_padded = 0;        // >= num_rows
  std::int32_t* ids = nullptr;        // [num_padded]; 0 where a record is not valid
  std::int32_t* positions = nullptr;  // [num_padded]
  std::int32_t* slots = nullptr;      // [num_padded] block * kBlockSize + offset
};

// REQUIRES: the stream is a device's.
void advance_rows(Stream& stream, const AdvanceRowsArgs& args);

}  // namespace lmtp::kernels
