// Decode steps on a device: a stream keeps its row there from step to step, with what is wanted of
// it and its block table, and only what has changed since the last such step goes up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "kernels/decode_rows.h"
#include "kernels/memory.h"
#include "kernels/sample.h"
#include "kernels/stream.h"
#include "lmtp/base/ids.h"
#include "lmtp/model/model_input.h"
#include "lmtp/scheduler/step_plan.h"
#include "staged_memory.h"

namespace lmtp::agent {

// For each step, in this order: place, prepare, add_to, advance; and forget where that did not come
// to its end. Owner: an agent; one thread.
class DecodeRows {
 public:
  // `stream` must outlive this. rows_max: of any step, padding included. context_length: of any
  // stream.
  DecodeRows(kernels::Stream& stream, int rows_max, int context_length);

  // What it takes of the device.
  static std::int64_t num_bytes(int rows_max, int context_length);

  // Of a step's rows.
  struct Extent {
    int num_rows = 0;
    std::int32_t context_max = 0;  // position behind the last token of any
    std::int32_t num_blocks = 0;   // of all
  };
  // Gives each row of the plan a place: the one where its sequence was in the last step, if it can.
  // REQUIRES: each row of the plan has one token; rows_max rows or fewer.
  Extent place(const scheduler::StepPlan& plan);
  // Which row of the plan lies at each place; valid until the next place().
  const std::vector<int>& order() const { return order_; }

  // Finds out what has changed. `drawn`: for each row of the plan, the record of the step before
  // that holds its token; empty: tokens are those of the sequences. `wanted`: for each place.
  // num_padded: in [plan.rows.size(), rows_max]. REQUIRES: the plan is the one last placed.
  void prepare(const scheduler::StepPlan& plan, std::span<const std::int32_t> drawn,
               std::span<const kernels::SampleRow> wanted, int num_padded);
  // What add_to() takes of an Upload, and the adding.
  std::size_t upload_size() const { return Upload::size_of(changes_); }
  void add_to(Upload& upload) { uploaded_changes_ = upload.add(changes_); }
  // Puts the making of the step's arrays into the stream. They lie where they lay in any step with
  // so many rows, padding included; context_max and copies are left to the caller.
  // `records`: of the step before. REQUIRES: the upload was sent.
  model::InputArrays advance(const kernels::SampleRecord* records);

  // On the device, a place each.
  const kernels::SampleRow* sample_rows() const;

  // What lies on the device is not known any more.
  void forget() { is_known_ = false; }

 private:
  // Where things begin in the memory, in words.
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

  void begin_anew();
  // Notes which of the words are not on the device yet.
  void write(std::size_t at, const void* words, std::size_t count);
  template <typename WordOf>
  void write_each(std::size_t at, std::size_t count, const WordOf& word_of);
  std::int32_t* on_device(std::size_t at) const;

  kernels::Stream& stream_;
  const Layout layout_;
  kernels::Memory memory_;
  std::vector<std::uint32_t> words_;  // those on the device once all steps so far have run
  bool is_known_ = false;             // that they are these
  std::unordered_map<SequenceId, int> place_of_;
  std::vector<int> order_;
  std::vector<int> newcomers_;
  std::vector<std::int32_t> numbers_;  // [rows_max + 1] 0, 1, 2 ...
  std::vector<std::int32_t> row_words_;
  std::vector<kernels::WordChange> changes_;
  const kernels::WordChange* uploaded_changes_ = nullptr;
  int num_rows_ = 0;
  int num_padded_ = 0;
};

}  // namespace lmtp::agent
