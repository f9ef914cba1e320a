// The ops that begin a step where the batch is: its arrays are made of what stays there of each
// running sequence, by its slot, and of a few words a row.
#pragma once

#include <cstdint>

#include "kernels/sample.h"
#include "kernels/stream.h"
#include "lmtp/base/batch_limits.h"
#include "lmtp/base/ids.h"

namespace lmtp::kernels {

// words[at] becomes `value`.
struct alignas(8) WordPatch {
  std::uint32_t at = 0;
  std::uint32_t value = 0;
};

// A decode step's row.
struct alignas(16) BatchRow {
  std::int32_t slot = 0;
  std::int32_t token = 0;  // its input, or ~i where records[i] has it
  std::int32_t position = 0;
  std::int32_t first_block = 0;  // blocks of all rows before it
};

// What differs between steps of as many rows, padding included. In memory of the host that ops read
// (DeviceApi::allocate_pinned), at fixed addresses: a graph with the op serves all of them.
struct alignas(16) StepHeader {
  std::int32_t num_patches = 0;
  std::int32_t num_rows = 0;
  std::int32_t num_blocks = 0;  // of all rows
};

// Patches that are read whatever num_patches is: so many must be readable.
inline constexpr int kStepPatchesRead = 256;
inline constexpr int kStepRowsMax = BatchLimits::kSequencesMax;

struct StepBatchArgs {
  const StepHeader* step = nullptr;
  const WordPatch* patches = nullptr;  // [step->num_patches], of distinct words
  const BatchRow* rows = nullptr;      // [step->num_rows]; [num_padded] must be readable
  // What stays: of each slot sampling parameters, and from slot * table_stride on the blocks of its
  // sequence, kBlockSize tokens each. Patched first.
  std::uint32_t* words = nullptr;
  const SampleRow* slot_samples = nullptr;  // among the words, as block_tables
  const std::int32_t* block_tables = nullptr;
  std::int64_t table_stride = 0;
  // Each group of layers (KvLayout) has such tables, and slots below: so many words apart.
  int num_groups = 1;
  std::int64_t group_stride = 0;
  std::int64_t slots_stride = 0;  // >= num_padded where there are several
  const SampleRecord* records = nullptr;
  // The step's arrays. The rows are followed by padding, whose results are ignored: token 0 at
  // position 0, written to the slots of block 0 in turn (so these are not distinct), with one block
  // each, the first of slot 0, and no sample.
  std::int32_t num_padded = 0;            // in [num_rows, kStepRowsMax]
  std::int32_t* ids = nullptr;            // [num_padded]; 0 where a record is not valid
  std::int32_t* positions = nullptr;      // [num_padded]
  std::int32_t* slots = nullptr;          // by group [num_padded] block * kBlockSize + offset
  std::int32_t* cu_seqlens = nullptr;     // [num_padded + 1] 0, 1, 2 ...
  std::int32_t* block_offsets = nullptr;  // [num_padded + 1] blocks of all rows before
  std::int32_t* table_starts = nullptr;   // [num_padded] in block_tables
  SampleRow* samples = nullptr;           // [num_padded]; of padding `scored` alone
};

void step_batch(Stream& stream, const StepBatchArgs& args);

// Input tokens of which some are still in records.
struct DrawnIdsArgs {
  const std::int32_t* tokens = nullptr;  // [count]; ~i where records[i] has it
  std::int64_t count = 0;
  const SampleRecord* records = nullptr;
  std::int32_t* ids = nullptr;  // [count], may be `tokens`; 0 where a record is not valid
};

void drawn_ids(Stream& stream, const DrawnIdsArgs& args);

}  // namespace lmtp::kernels
