#include "backend_agent.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "batch_builder.h"
#include "device_input.h"
#include "kernels/device_api.h"
#include "kernels/sample.h"
#include "lmtp/base/check.h"
#include "load_model.h"
#include "numerics_id.h"

namespace lmtp::agent {

using kernels::DeviceError;

BackendAgent::BackendAgent(AgentParts parts, const AgentOptions& options, int num_blocks)
    : options_(options),
      parts_(std::move(parts)),
      numerics_(numerics_id(options, parts_.stream->backend())),
      tile_(logit_rows_max(options)),
      upload_(*parts_.stream),
      resident_batch_(*parts_.stream, options.batch.rows_max(), longest_stream(options)),
      graphs_(*parts_.stream),
      sampling_(*parts_.stream, options.config.vocab_size, options.batch, tile_),
      logits_(kernels::Memory::allocate(parts_.stream->backend(), logits_bytes(options))) {
  (void)stream().scratch(stream().backend().scratch_bytes(op_limits(options_, num_blocks)));
  cache_ =
      std::make_unique<model::KvCache>(options_.config, num_blocks, stream(), kv_type(options_));
  stream().synchronize();
}

scheduler::AgentInfo BackendAgent::info() const {
  return {.device = device_name(options_),
          .dtype = dtype_name(options_.weight_type),
          .num_blocks = cache_->num_blocks(),
          .kv_bytes = cache_->num_bytes(),
          .num_parameters = parts_.model->num_parameters(),
          .takes_kv_at_once = runs_ahead(),
          .notes = parts_.notes,
          .numerics = numerics_};
}

Result<void> BackendAgent::guarded(const std::function<void()>& work) {
  try {
    stream().use();
    work();
    return {};
  } catch (const std::exception& exception) {
    wait_after_failure();
    return Error{cause_of(exception), exception.what()};
  }
}

Result<void> BackendAgent::forward(const scheduler::StepPlan& plan) {
  LMTP_CHECK(!plan.empty() && plan.num_tokens <= options_.batch.max_tokens, plan.num_tokens,
             options_.batch.max_tokens);
  LMTP_CHECK(num_started_ < (runs_ahead() ? kStepsMax : 1), num_started_);
  if (is_forwarded_) wait_after_failure();  // of the caller's
  Result<void> done = guarded([&] { put(plan, steps_[next_]); });
  is_forwarded_ = done.ok();
  return done;
}

Result<void> BackendAgent::choose(std::span<const scheduler::RowMask> masks) {
  LMTP_CHECK(is_forwarded_);
  is_forwarded_ = false;
  Step& step = steps_[next_];
  Result<void> done = guarded([&] {
    sampling_.set_masks(masks, step.result);
    for (std::size_t first = 0; first < targets_.size(); first += static_cast<std::size_t>(tile_)) {
      const std::int64_t count = tile_size(first);
      if (first > 0) write_logits(logit_rows_ + first, count);
      sampling_.choose(sample_rows_, first, logits(count));
    }
    sampling_.fetch(step.tokens);
    stream().mark(next_);
    step.started = Clock::now();
  });
  if (!done.ok()) return done;
  next_ = (next_ + 1) % kStepsMax;
  ++num_started_;
  return {};
}

Result<scheduler::StepResult> BackendAgent::collect() {
  LMTP_CHECK(num_started_ > 0);
  const int oldest = (next_ + kStepsMax - num_started_) % kStepsMax;
  scheduler::StepResult result;
  const Result<void> done = guarded([&] { result = take(oldest); });
  if (done.ok()) return result;
  num_started_ = 0;
  return done.error();
}

// The forward pass of a step, and its first tile of logits.
void BackendAgent::put(const scheduler::StepPlan& plan, Step& step) {
  step.result = {};
  list_input_records(plan);
  list_targets(plan, targets_, step.result);
  if (is_decode(plan)) {
    decode(plan);
  } else {
    compute(plan);
  }
  step.record_of.assign(plan.rows.size(), -1);
  for (std::size_t record = 0; record < targets_.size(); ++record) {
    step.record_of[static_cast<std::size_t>(targets_[record].plan_row)] =
        static_cast<std::int32_t>(record);
  }
}

// Waits for a step's result. If the device is done already, how long it worked is not known:
// device_wait is then zero.
scheduler::StepResult BackendAgent::take(int oldest) {
  Step& step = steps_[oldest];
  const bool was_done = stream().has_reached(oldest);
  stream().wait_for(oldest);
  --num_started_;
  read_tokens(step.tokens, step.result);
  const Clock::time_point now = Clock::now();
  if (!was_done) step.result.device_wait = now - std::max(step.started, last_finished_);
  last_finished_ = now;
  return std::move(step.result);
}

// Lists which records of the step before hold the input tokens of this one (PlanRow::input_row).
void BackendAgent::list_input_records(const scheduler::StepPlan& plan) {
  input_records_.clear();
  if (plan.rows.front().input_row < 0) {
    LMTP_CHECK(num_started_ == 0, num_started_);
    return;
  }
  LMTP_CHECK(num_started_ == 1 && is_decode(plan), num_started_, plan.num_tokens);
  const std::vector<std::int32_t>& records = steps_[(next_ + kStepsMax - 1) % kStepsMax].record_of;
  for (const scheduler::PlanRow& row : plan.rows) {
    LMTP_CHECK(row.input_row >= 0 && row.input_row < static_cast<int>(records.size()),
               row.input_row, records.size());
    input_records_.push_back(records[static_cast<std::size_t>(row.input_row)]);
    LMTP_CHECK(input_records_.back() >= 0, row.input_row);
  }
}

// Here, because the ops cannot check ids that are on a device.
void BackendAgent::check_token(TokenId id) const {
  LMTP_CHECK(id >= 0 && id < options_.config.vocab_size, id, options_.config.vocab_size);
}

// One token of each sequence, and logits of each.
bool BackendAgent::is_decode(const scheduler::StepPlan& plan) const {
  return plan.num_tokens == static_cast<int>(plan.rows.size()) &&
         plan.num_logits == plan.num_tokens && plan.num_tokens <= options_.batch.rows_max();
}

void BackendAgent::decode(const scheduler::StepPlan& plan) {
  const ResidentBatch::Extent extent = resident_batch_.place(plan);
  if (input_records_.empty()) {
    for (const scheduler::PlanRow& row : plan.rows) {
      check_token(row.sequence->tokens[static_cast<std::size_t>(row.first_position)]);
    }
  }
  targets_.clear();
  for (const int row : resident_batch_.order()) targets_.push_back({.plan_row = row, .index = 0});
  // Padded where a graph of the shape may be launched again.
  const DecodeShape shape = runs_ahead() ? decode_shape(extent.num_rows, options_.batch.rows_max(),
                                                        extent.context_max, extent.num_blocks)
                                         : DecodeShape{.num_rows = extent.num_rows,
                                                       .context_max = extent.context_max,
                                                       .num_table_blocks = extent.num_blocks};
  sampling_.prepare(plan, targets_);
  resident_batch_.prepare(plan, input_records_, sampling_.rows(), shape.num_rows);
  build_copies(plan, input_.copies);
  upload_.begin(resident_batch_.upload_size() + Upload::size_of(input_.copies) +
                sampling_.counts_size());
  resident_batch_.add_to(upload_);
  const kernels::KvCopy* copies = upload_.add(input_.copies);
  sampling_.add_counts(upload_);
  upload_.send();
  model::InputArrays arrays = resident_batch_.advance(sampling_.records());
  arrays.context_max = shape.context_max;
  arrays.num_table_blocks = shape.num_table_blocks;
  logit_rows_ = arrays.logit_rows;
  sample_rows_ = {
      .rows = resident_batch_.sample_rows(), .positions = arrays.positions, .ids = arrays.ids};
  cache_->copy_blocks(stream(), copies, static_cast<std::int64_t>(input_.copies.size()));
  const auto work = [&] {
    hidden_ = parts_.model->forward(stream(), arrays, *cache_);
    write_logits(logit_rows_, std::min(shape.num_rows, tile_));
  };
  if (runs_ahead() && options_.debug.decode_graphs) {
    graphs_.run(shape, stream().num_scratch_moves(), work);
  } else {
    work();
  }
}

// Any other step.
void BackendAgent::compute(const scheduler::StepPlan& plan) {
  build_input(plan, input_);
  for (const TokenId id : input_.ids) check_token(id);
  sampling_.prepare(plan, targets_);
  upload_.begin(upload_size(input_) + sampling_.rows_size() + sampling_.counts_size());
  const model::InputArrays arrays = add_input(input_, upload_);
  sample_rows_ = sampling_.add_rows(upload_);
  sampling_.add_counts(upload_);
  upload_.send();
  logit_rows_ = arrays.logit_rows;
  hidden_ = parts_.model->forward(stream(), arrays, *cache_);
  if (!targets_.empty()) write_logits(logit_rows_, tile_size(0));
}

// Rows of the tile of logits that begins with this target.
std::int64_t BackendAgent::tile_size(std::size_t first) const {
  return std::min<std::int64_t>(tile_, static_cast<std::int64_t>(targets_.size() - first));
}

// The first `count` rows of logits_.
kernels::Matrix<float> BackendAgent::logits(std::int64_t count) const {
  return kernels::make_matrix(logits_.floats(), count, std::int64_t{options_.config.vocab_size});
}

void BackendAgent::write_logits(const std::int32_t* rows, std::int64_t count) {
  parts_.model->logits(stream(), hidden_, rows, logits(count));
}

// Buffers may be reused only after all queued work has ended; whether the device is lost shows only
// then, too.
void BackendAgent::wait_after_failure() {
  resident_batch_.invalidate();
  try {
    stream().synchronize();
  } catch (const DeviceError& error) {
    is_lost_ = error.kind() == DeviceError::Kind::kSticky;
  }
}

}  // namespace lmtp::agent
