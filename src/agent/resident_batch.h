// ResidentBatch: what stays on the device of each running sequence, by its slot: its block table
// and its sampling parameters. A decode step sends what has changed of them, and a few words a row.
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

// For each plan note(), and for each decode step prepare(), add_to(), advance(). Owner: an agent;
// one thread.
class ResidentBatch {
 public:
  // `stream` must outlive this. rows_max: most rows of a step, padding included, and slots.
  // context_length: of the longest stream.
  ResidentBatch(kernels::Stream& stream, int rows_max, int context_length);

  // Device memory of a batch.
  static std::int64_t num_bytes(int rows_max, int context_length);

  // Of the slots that are named here, what is on the device is not what it has to be.
  void note(const scheduler::SlotChanges& changes);
  // All sampling parameters are sent again: the arrays that they point to have moved.
  void forget_samples();

  // The size of a step.
  struct Extent {
    int num_rows = 0;
    std::int32_t context_max = 0;  // tokens of the longest sequence
    std::int32_t num_blocks = 0;   // of all sequences
  };
  static Extent extent_of(const scheduler::StepPlan& plan);

  // Lists what is to be sent. input_records: for each row of the plan the record of the step before
  // that holds its input token, or -1: it is known. sample_rows: of the plan's rows. num_padded: in
  // [plan.rows.size(), rows_max]. REQUIRES: each row of the plan has one token, and logits of it.
  void prepare(const scheduler::StepPlan& plan, const scheduler::SlotTable& slots,
               std::span<const std::int32_t> input_records,
               std::span<const kernels::SampleRow> sample_rows, int num_padded);
  // Adds it to an Upload, which must have room for upload_size() bytes.
  std::size_t upload_size() const { return Upload::size_of(patches_) + Upload::size_of(rows_); }
  void add_to(Upload& upload);
  // Queues the op that makes the step's arrays, and returns them; the caller sets context_max and
  // copies. For the same num_padded they are always at the same addresses.
  // `records`: of the step before. REQUIRES: the upload was sent.
  model::InputArrays advance(const kernels::SampleRecord* records);

  // On the device, one for each row of the plan.
  const kernels::SampleRow* sample_rows() const;

 private:
  // Offsets in the memory, in words.
  struct Layout {
    std::size_t slot_samples = 0;
    std::size_t samples = 0;
    std::size_t ids = 0;
    std::size_t positions = 0;
    std::size_t slots = 0;
    std::size_t cu_seqlens = 0;
    std::size_t block_offsets = 0;
    std::size_t table_starts = 0;
    std::size_t block_tables = 0;  // [rows_max, table_stride]
    std::size_t table_stride = 0;
    std::size_t num_words = 0;

    Layout(int rows_max, int context_length);
  };
  // What the device has of a slot.
  struct Sent {
    std::size_t num_blocks = 0;
    bool is_sample = false;
  };

  void patch(std::size_t at, const void* words, std::size_t count);
  std::int32_t* on_device(std::size_t at) const;
  kernels::SampleRow* samples_on_device(std::size_t at) const;

  kernels::Stream& stream_;
  const int rows_max_;
  const Layout layout_;
  kernels::Memory memory_;
  std::vector<Sent> sent_;  // by slot
  std::vector<kernels::WordPatch> patches_;
  std::vector<kernels::BatchRow> rows_;
  const kernels::WordPatch* uploaded_patches_ = nullptr;
  const kernels::BatchRow* uploaded_rows_ = nullptr;
  std::int32_t num_blocks_ = 0;
  int num_padded_ = 0;
};

}  // namespace lmtp::agent
