// StepSampling: from rows of logits to a step's result. The sampling parameters of each row are
// uploaded, and one small record for each comes back. On a device two steps may be in flight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/memory.h"
#include "kernels/sample.h"
#include "kernels/stream.h"
#include "lmtp/base/batch_limits.h"
#include "lmtp/request/sampling_params.h"
#include "lmtp/scheduler/model_agent.h"
#include "lmtp/scheduler/slot_table.h"
#include "lmtp/scheduler/step_plan.h"
#include "shared_arrays.h"
#include "staged_memory.h"

namespace lmtp::agent {

// What a row of logits is computed for: a row of the plan, and an index in that row's results.
struct LogitTarget {
  int plan_row = 0;
  int index = 0;
  bool is_behind_draft = false;  // of that row
};

// The targets of a plan, in the order of ModelInput::logit_rows, and a result of its shape.
void list_targets(const scheduler::StepPlan& plan, std::vector<LogitTarget>& targets,
                  scheduler::StepResult& result);

// The error of a row that has a NaN or no possible token.
inline const Error kNoNumbers{
    ErrorCode::kInternal,
    "the model's logits at this position are not numbers, or no token is possible"};
// The same of a row with a mask.
inline const Error kNothingPossible{
    ErrorCode::kConstraint,
    "constraint: none of the tokens that it allows here is possible by logit_bias, mask and "
    "min_tokens"};

// Tokens that are being copied back from the device.
struct PendingTokens {
  struct Row {
    LogitTarget target;
    bool lists_top = true;
    bool is_masked = false;  // by a RowMask
  };
  std::vector<Row> rows;
  int top_stride = 0;
  const std::byte* out = nullptr;  // in host memory: records, then top tokens
};

// Writes the tokens to the result's rows. A row whose logits are not numbers becomes the error of
// its plan row alone; behind a draft they end that row's tokens instead. top_logprobs are best
// first and ties by the lowest id, those of probability 0 left out, with the chosen token at their
// end where it is not among them; empty for a scored token that asks for none. REQUIRES: the stream
// has executed the copy.
void read_tokens(const PendingTokens& tokens, scheduler::StepResult& result);

// Sampling parameters of rows of logits, where the ops run.
struct SampleRows {
  const kernels::SampleRow* rows = nullptr;
  const std::int32_t* positions = nullptr;  // of the input token of each row
  const std::int32_t* ids = nullptr;        // the input tokens; null: they are in the sequences
};

// Owner: an agent; one thread.
class StepSampling {
 public:
  // `stream` must outlive this. num_logits: the most rows of logits of a choose(). Allocates
  // num_bytes() on a device. Throws DeviceError.
  StepSampling(kernels::Stream& stream, int vocab_size, const BatchLimits& batch, int num_logits);

  static std::int64_t num_bytes(int vocab_size, const BatchLimits& batch, int num_logits);

  // Makes a step's sample rows, one for each target, and uploads the biases and masks that are not
  // on the device yet. Counts the tokens of slots with penalties. True: rows made before point to
  // where their biases and masks are no more.
  bool prepare(const scheduler::StepPlan& plan, scheduler::SlotTable& slots,
               const std::vector<LogitTarget>& targets);
  // The sample rows made by prepare(), on the host: a ResidentBatch uploads them itself.
  std::span<const kernels::SampleRow> rows() const { return rows_; }
  // Uploads the sample rows (unless a ResidentBatch does) and the token counts (always); the Upload
  // must have room for rows_size() and counts_size() bytes.
  std::size_t rows_size() const { return Upload::size_of(rows_) + Upload::size_of(positions_); }
  SampleRows add_rows(Upload& upload) const;
  std::size_t counts_size() const { return Upload::size_of(counts_); }
  void add_counts(Upload& upload) { uploaded_counts_ = upload.add(counts_); }
  // Which tokens may be drawn (ModelAgent::choose); writes to the result which rows are skipped or
  // fail. REQUIRES: after prepare(), before choose(); none, or one for each row of its plan.
  void set_masks(std::span<const scheduler::RowMask> masks, scheduler::StepResult& result);
  // Queues the sampling for the targets [first, first + logits.rows). `rows`: of all targets.
  // logits: [rows, vocab_size] on the device, edited in place. REQUIRES: the upload was sent.
  void choose(const SampleRows& rows, std::size_t first, kernels::Matrix<float> logits);
  // Queues the copy of the tokens to the host, where they are valid until the next fetch() but one.
  // REQUIRES: choose() was called for all targets; the copy of the fetch() before the last is done.
  void fetch(PendingTokens& tokens);

  // On the device, one for each target of the last choose(); valid for ops queued before the next
  // choose(). A prepare() for at most as many targets and top tokens does not move them.
  const kernels::SampleRecord* records() const {
    return reinterpret_cast<const kernels::SampleRecord*>(out_.device());
  }

 private:
  bool upload_shared(const scheduler::StepPlan& plan, const scheduler::SlotTable& slots);
  kernels::SampleRow make_sample_row(const scheduler::PlanRow& row, scheduler::SlotState& state,
                                     const LogitTarget& target);
  std::size_t record_bytes() const;
  std::size_t out_bytes() const;
  void add_counts_of(const scheduler::SlotState& state);
  void count_tokens(const scheduler::SlotState& state, std::size_t num_tokens);

  kernels::Stream& stream_;
  const int vocab_size_;
  SharedArrays shared_;
  std::vector<LogitTarget> targets_;
  std::vector<kernels::SampleRow> rows_;     // of the targets
  std::vector<std::int32_t> positions_;      // likewise
  std::vector<kernels::TokenCount> counts_;  // of all rows, concatenated
  std::vector<std::int32_t> count_of_;       // [vocab_size], all zero between two rows
  std::vector<SharedArray> used_;            // biases and masks of the targets
  const kernels::Memory raw_;                // [rows of logits, vocab_size] f32: SampleArgs::raw
  const kernels::TokenCount* uploaded_counts_ = nullptr;
  std::vector<std::int32_t> mask_of_;  // of the targets, in masks_; empty: none has one
  StagedMemory masks_;                 // mask_of_, then the masks
  int top_stride_ = 0;
  StagedMemory out_;  // records of all targets, then their top tokens
};

}  // namespace lmtp::agent
