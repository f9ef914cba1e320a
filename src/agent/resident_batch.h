// ResidentBatch: what stays on the device of each running sequence, by its slot: its block table
// and its sampling parameters. A decode step reads from the host's memory what has changed of them,
// and a few words a row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/memory.h"
#include "kernels/sample.h"
#include "kernels/step_batch.h"
#include "kernels/stream.h"
#include "lmtp/base/ids.h"
#include "lmtp/model/model_input.h"
#include "lmtp/scheduler/slot_table.h"
#include "lmtp/scheduler/step_plan.h"
#include "staged_memory.h"

namespace lmtp::agent {

// For each plan mark_stale(), and for each decode step prepare(), advance(). Owner: an agent; one
// thread.
class ResidentBatch {
 public:
  // `stream` must outlive this. rows_max: most rows of a step, padding included, and slots.
  // context_length: of the longest stream. num_groups: KvLayout's.
  ResidentBatch(kernels::Stream& stream, int rows_max, int context_length, int num_groups = 1);

  // Device memory of a batch.
  static std::int64_t num_bytes(int rows_max, int context_length, int num_groups);

  // These slots are stale on the device from now on.
  void mark_stale(const scheduler::SlotChanges& changes);
  // All sampling parameters are written again: the arrays that they point to have moved.
  void forget_samples();

  // The size of a step.
  struct Extent {
    int num_rows = 0;
    std::int32_t context_max = 0;  // tokens of the longest sequence
    std::int32_t num_blocks = 0;   // of all sequences
  };
  static Extent extent_of(const scheduler::StepPlan& plan);

  // Writes what the step reads. input_records: for each row of the plan the record of the step
  // before that holds its input token, or -1: it is known. sample_rows: of the plan's rows. turn:
  // MappedMemory's. REQUIRES: each row of the plan has one token, and logits of it.
  void prepare(const scheduler::StepPlan& plan, const scheduler::SlotTable& slots,
               std::span<const std::int32_t> input_records,
               std::span<const kernels::SampleRow> sample_rows, int turn);
  // Words of what stays that the last prepare() changes.
  std::size_t num_patches() const { return patches_.size(); }
  // Queues the op that makes the step's arrays. A graph of it serves other steps of that turn and
  // num_padded, until num_moves() is another. num_padded: in [plan.rows.size(), rows_max].
  // `records`: of the step before.
  void advance(int num_padded, const kernels::SampleRecord* records);
  std::int64_t num_moves() const { return mapped_.num_moves(); }

  // They are always at the same addresses; the caller sets context_max and copies.
  model::InputArrays arrays(int num_padded) const;
  // On the device, one for each row of the plan, and of padding kSampleNothing.
  const kernels::SampleRow* sample_rows() const;

 private:
  // Offsets in the memory, in words.
  struct Layout {
    std::size_t slot_samples = 0;
    std::size_t samples = 0;
    std::size_t ids = 0;
    std::size_t positions = 0;
    std::size_t slots = 0;  // [groups, rows_max]
    std::size_t cu_seqlens = 0;
    std::size_t block_offsets = 0;
    std::size_t table_starts = 0;
    std::size_t block_tables = 0;  // [groups, rows_max, table_stride]
    std::size_t table_stride = 0;
    std::size_t group_stride = 0;  // of block_tables
    std::size_t num_words = 0;

    Layout(int rows_max, int context_length, int num_groups);
  };
  // What the device has of a slot.
  struct Sent {
    std::size_t num_blocks = 0;  // of each group
    bool is_sample = false;
  };

  std::size_t mapped_bytes(std::size_t num_patches) const;
  void patch_tables(std::size_t slot, const std::vector<BlockId>& blocks);
  kernels::StepHeader* header() const;
  kernels::BatchRow* mapped_rows() const;
  kernels::WordPatch* mapped_patches() const;
  void patch(std::size_t at, const void* words, std::size_t count);
  std::int32_t* on_device(std::size_t at) const;
  kernels::SampleRow* samples_on_device(std::size_t at) const;

  kernels::Stream& stream_;
  const int rows_max_;
  const int num_groups_;
  const Layout layout_;
  kernels::Memory memory_;
  MappedMemory mapped_;     // StepHeader, BatchRow [rows_max], WordPatch
  std::vector<Sent> sent_;  // by slot
  std::vector<kernels::WordPatch> patches_;
  std::vector<kernels::BatchRow> rows_;
};

}  // namespace lmtp::agent
