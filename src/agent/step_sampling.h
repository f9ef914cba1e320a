// StepSampling: from rows of logits to a step's result. The sampling parameters of each row are
// uploaded, and the op writes one small record for each to the host's memory. On a device two steps
// may be in flight.
#pragma once

#include <algorithm>
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

// Tokens that the device writes.
struct PendingTokens {
  struct Row {
    LogitTarget target;
    bool lists_top = true;
    bool is_masked = false;  // by a RowMask
    int listed_at = 0;       // in its top tokens: num_listed others
    int num_listed = 0;
    Measures measures = {};  // in the next of its top tokens
  };
  std::vector<Row> rows;
  int top_stride = 0;
  const kernels::SampleRecord* records = nullptr;  // in host memory, as top tokens
  const kernels::TopToken* top = nullptr;
};

// Writes the tokens to the result's rows. A row whose logits are not numbers becomes the error of
// its plan row alone; behind a draft they end that row's tokens instead. top_logprobs are best
// first and ties by the lowest id, those of probability 0 left out, with the chosen token at their
// end where it is not among them; empty for a scored token that asks for none. REQUIRES: the stream
// has executed choose().
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
  // on the device yet. Counts the tokens of slots with penalties. turn: MappedMemory's. True: rows
  // made before point to where their biases and masks are no more.
  bool prepare(const scheduler::StepPlan& plan, scheduler::SlotTable& slots,
               const std::vector<LogitTarget>& targets, int turn);
  // The sample rows made by prepare(), on the host: a ResidentBatch sends them itself.
  std::span<const kernels::SampleRow> rows() const { return rows_; }
  // Otherwise uploads them; the Upload must have room for rows_size() bytes.
  std::size_t rows_size() const { return Upload::size_of(rows_) + Upload::size_of(positions_); }
  SampleRows add_rows(Upload& upload) const;
  // Which tokens may be drawn (ModelAgent::choose); writes to the result which rows are skipped or
  // fail. REQUIRES: after prepare(), before choose(); none, or one for each row of its plan.
  void set_masks(std::span<const scheduler::RowMask> masks, scheduler::StepResult& result);
  bool has_masks() const { return !mask_of_.empty(); }
  // Queues the sampling for the targets [first, first + logits.rows), padding included. `rows`: of
  // all targets. logits: [rows, vocab_size] on the device, edited in place. A graph of it serves
  // other steps of that turn that have no masks, at most rows_max targets, and sample rows at the
  // same place, until num_moves() is another. REQUIRES: the upload was sent.
  void choose(const SampleRows& rows, std::size_t first, kernels::Matrix<float> logits);
  std::int64_t num_moves() const { return counts_to_.num_moves() + out_.num_moves(); }
  // Says what the sampling writes and where: valid until the next prepare() of that turn.
  void list(PendingTokens& tokens) const;

  // On the device, one for each target of the last choose(); valid for ops queued before the next
  // choose(). They do not move.
  const kernels::SampleRecord* records() const {
    return static_cast<const kernels::SampleRecord*>(records_.data());
  }

 private:
  bool upload_shared(const scheduler::StepPlan& plan, const scheduler::SlotTable& slots);
  kernels::SampleRow make_sample_row(const scheduler::PlanRow& row, scheduler::SlotState& state,
                                     const LogitTarget& target);
  int top_max() const;
  int stride_max() const { return std::min(kernels::kSampleTopMax, 2 * vocab_size_) + 1; }
  std::size_t out_bytes(std::size_t num_rows, int top_stride) const;
  kernels::SampleRecord* sent_records() const;
  kernels::TopToken* sent_top() const;
  void add_counts_of(const scheduler::SlotState& state);
  void count_tokens(const scheduler::SlotState& state, std::size_t num_tokens);

  kernels::Stream& stream_;
  const int vocab_size_;
  const BatchLimits batch_;
  SharedArrays shared_;
  std::vector<LogitTarget> targets_;
  std::vector<kernels::SampleRow> rows_;     // of the targets
  std::vector<std::int32_t> positions_;      // likewise
  std::vector<Measures> measures_;           // likewise
  std::vector<kernels::TokenCount> counts_;  // of all rows, concatenated
  std::vector<std::int32_t> count_of_;       // [vocab_size], all zero between two rows
  std::vector<SharedArray> used_;            // biases and masks of the targets
  const kernels::Memory raw_;                // [rows of logits, vocab_size] f32: SampleArgs::raw
  std::vector<std::int32_t> mask_of_;        // of the targets, in masks_; empty: none has one
  StagedMemory masks_;                       // mask_of_, then the masks
  int top_stride_ = 0;
  const kernels::Memory records_;  // [batch.max_tokens] where the ops run
  MappedMemory counts_to_;         // counts_
  MappedMemory out_;               // records [batch.max_tokens], then top tokens [.., top_stride_]
};

}  // namespace lmtp::agent
