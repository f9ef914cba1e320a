// The op that steps a batch of decode rows which stays where the ops run: it patches the words that
// have changed and makes the step's arrays of them, in one launch.
#pragma once

#include <cstdint>

#include "kernels/sample.h"
#include "kernels/stream.h"
#include "lmtp/base/ids.h"

namespace lmtp::kernels {

// words[at] becomes `value`.
struct WordPatch {
  std::uint32_t at = 0;
  std::uint32_t value = 0;
};

struct StepBatchArgs {
  std::uint32_t* words = nullptr;      // the batch's memory; patches are written first
  const WordPatch* patches = nullptr;  // [num_patches], of distinct words
  std::int64_t num_patches = 0;
  // Among the words: of row r the input token, or ~i where records[i] has it; its position, which
  // is one more afterwards; and, from r * table_stride, the blocks of its sequence, kBlockSize
  // tokens each.
  const std::int32_t* tokens = nullptr;        // [num_rows]
  std::int32_t* next_positions = nullptr;      // [num_rows]
  const std::int32_t* block_tables = nullptr;  // [num_rows, table_stride]
  std::int64_t table_stride = 0;
  const SampleRecord* records = nullptr;
  std::int32_t num_rows = 0;
  // The step's arrays. The rows are followed by padding, whose results are ignored: token 0 at
  // position 0, written to the slots of block 0 in turn (so these are not distinct), with whatever
  // block tables the rows had last.
  std::int32_t num_padded = 0;        // >= num_rows
  std::int32_t* ids = nullptr;        // [num_padded]; 0 where a record is not valid
  std::int32_t* positions = nullptr;  // [num_padded]
  std::int32_t* slots = nullptr;      // [num_padded] block * kBlockSize + offset
};

void step_batch(Stream& stream, const StepBatchArgs& args);

}  // namespace lmtp::kernels
