// ResidentBatch: the batch of decode steps, which stays on the device. A stream keeps its row there
// from step to step, with its block table and sampling parameters, and only words that have changed
// since the last decode step are uploaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "kernels/memory.h"
#include "kernels/sample.h"
#include "kernels/step_batch.h"
#include "kernels/stream.h"
#include "lmtp/base/ids.h"
#include "lmtp/model/model_input.h"
#include "lmtp/scheduler/step_plan.h"
#include "staged_memory.h"

namespace lmtp::agent {

// For each step, in this order: place, prepare, add_to, advance; invalidate if any of them, or the
// step, failed. Owner: an agent; one thread.
class ResidentBatch {
 public:
  // `stream` must outlive this. rows_max: most rows of a step, padding included. context_length: of
  // the longest stream.
  ResidentBatch(kernels::Stream& stream, int rows_max, int context_length);

  // Device memory of a batch.
  static std::int64_t num_bytes(int rows_max, int context_length);

  // The size of a step.
  struct Extent {
    int num_rows = 0;
    std::int32_t context_max = 0;  // tokens of the longest sequence
    std::int32_t num_blocks = 0;   // of all sequences
  };
  // Gives each row of the plan a place in the batch: if possible the one that its sequence had in
  // the last step. REQUIRES: each row of the plan has one token; rows_max rows or fewer.
  Extent place(const scheduler::StepPlan& plan);
  // Which row of the plan lies at each place; valid until the next place().
  const std::vector<int>& order() const { return order_; }

  // Collects the words that have changed. input_records: for each row of the plan, the record of
  // the step before that holds its input token; empty: the sequences hold them. sample_rows: for
  // each place. num_padded: in [plan.rows.size(), rows_max]. REQUIRES: the plan is the one last
  // placed.
  void prepare(const scheduler::StepPlan& plan, std::span<const std::int32_t> input_records,
               std::span<const kernels::SampleRow> sample_rows, int num_padded);
  // Adds the changes to an Upload, which must have room for upload_size() bytes.
  std::size_t upload_size() const { return Upload::size_of(patches_); }
  void add_to(Upload& upload) { uploaded_patches_ = upload.add(patches_); }
  // Queues the op that makes the step's arrays, and returns them; the caller sets context_max and
  // copies. For the same num_padded they are always at the same addresses.
  // `records`: of the step before. REQUIRES: the upload was sent.
  model::InputArrays advance(const kernels::SampleRecord* records);

  // On the device, one for each place.
  const kernels::SampleRow* sample_rows() const;

  // After a failure: the contents of the device's memory are unknown; the next step sends all.
  void invalidate() { is_synced_ = false; }

 private:
  // Offsets in the memory, in words.
  struct Layout {
    std::size_t sample_rows = 0;
    std::size_t tokens = 0;
    std::size_t next_positions = 0;
    std::size_t block_offsets = 0;
    std::size_t cu_seqlens = 0;
    std::size_t ids = 0;
    std::size_t positions = 0;
    std::size_t slots = 0;
    std::size_t block_tables = 0;  // [rows_max, table_stride]
    std::size_t table_stride = 0;
    std::size_t num_words = 0;

    Layout(int rows_max, int context_length);
  };

  void clear_device();
  // Patches those of the words that are not on the device yet.
  void write(std::size_t at, const void* words, std::size_t count);
  template <typename WordOf>
  void write_each(std::size_t at, std::size_t count, const WordOf& word_of);
  std::int32_t* on_device(std::size_t at) const;

  kernels::Stream& stream_;
  const Layout layout_;
  kernels::Memory memory_;
  std::vector<std::uint32_t> words_;  // the device's words once all queued steps have run
  bool is_synced_ = false;            // false: the device's words are unknown
  std::unordered_map<SequenceId, int> place_of_;
  std::vector<int> order_;
  std::vector<int> new_rows_;
  std::vector<std::int32_t> numbers_;  // [rows_max + 1] 0, 1, 2 ...
  std::vector<std::int32_t> row_words_;
  std::vector<kernels::WordPatch> patches_;
  const kernels::WordPatch* uploaded_patches_ = nullptr;
  int num_rows_ = 0;
  int num_padded_ = 0;
};

}  // namespace lmtp::agent
