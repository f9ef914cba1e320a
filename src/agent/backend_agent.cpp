#include "backend_agent.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "batch_builder.h"
#include "device_input.h"
#include "kernels/device_api.h"
#include "kernels/sample.h"
#include "lmtp/base/check.h"
#include "lmtp/base/log.h"
#include "load_model.h"
#include "usual_steps.h"

namespace lmtp::agent {

using kernels::DeviceError;

BackendAgent::BackendAgent(AgentParts parts, const AgentOptions& options, int num_blocks)
    : options_(options),
      parts_(std::move(parts)),
      tile_(logit_rows_max(options)),
      upload_(*parts_.stream),
      groups_(kv_groups(options)),
      resident_batch_(*parts_.stream, options.batch.rows_max(), longest_stream(options),
                      groups_.layout.num_groups),
      graphs_(*parts_.stream),
      sampling_(*parts_.stream, options.config.vocab_size, options.batch, tile_),
      pooling_(*parts_.stream, *parts_.model),
      logits_(kernels::Memory::allocate(parts_.stream->backend(), logits_bytes(options))) {
  stream().backend().reserve(stream(), op_limits(options_, num_blocks));
  cache_ = std::make_unique<model::KvCache>(groups_, num_blocks, stream(), kv_type(options_),
                                            count_host_blocks(options_));
  input_.num_groups = groups_.layout.num_groups;
  stream().synchronize();
  if (cache_->num_host_blocks() > 0) measure_fetches();
  if (runs_ahead()) {
    if (has_graphs() && options_.debug.graphs_at_load_ms > 0) capture_usual_steps();
    return;
  }
  pages_ = std::make_unique<model::KvPages>(*cache_);
}

// By steps of the agent, each once kernel by kernel, so that CUDA loads them, and once for each
// turn's graph, which is launched, too, so that it gets to the device. It ends where none can be
// had, which the log has said.
void BackendAgent::capture_usual_steps() {
  const std::chrono::milliseconds time_max(options_.debug.graphs_at_load_ms);
  const Clock::time_point start = Clock::now();
  int count = 0;
  for (const scheduler::StepPlan& plan :
       usual_steps(options_.batch, longest_stream(options_), groups_.layout.num_groups)) {
    for (int i = 0; i <= MappedMemory::kTurns; ++i, next_ = (next_ + 1) % kStepsMax) {
      put(plan, steps_[next_]);
      put_choice({}, steps_[next_]);
      stream().synchronize();
    }
    const int before = std::exchange(count, graphs_.num_graphs());
    if (count == before || Clock::now() - start > time_max) break;
  }
  slots_ = {};
  const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
  log::info("captured " + std::to_string(count) + " graphs of usual steps in " +
            std::to_string(time.count()) + " ms");
}

// How long a block takes from the host, with nothing beside it: the second time, since the first
// one takes them out, which also makes zeros of what comes back.
void BackendAgent::measure_fetches() {
  constexpr std::int64_t kBytesMax = std::int64_t{64} << 20;
  const auto most = static_cast<int>(kBytesMax / kv_block_bytes(options_));
  const int first = cache_->num_blocks();
  const int count = std::clamp(most, 1, std::min(first - 1, cache_->num_host_blocks()));
  for (const bool is_out : {true, false}) {
    input_.copies.clear();
    for (int i = 0; i < count; ++i) {
      const int own = 1 + i;
      const int host = first + i;
      input_.copies.push_back({is_out ? own : host, is_out ? host : own, kBlockSize});
    }
    upload_.begin(Upload::size_of(input_.copies));
    const kernels::KvCopy* copies = upload_.add(input_.copies);
    upload_.send();
    const Clock::time_point start = Clock::now();
    cache_->copy_blocks(stream(), copies, count);
    stream().synchronize();
    fetch_time_ = (Clock::now() - start) / count;
  }
}

scheduler::AgentInfo BackendAgent::info() const {
  return {.device = device_name(options_),
          .dtype = dtype_name(options_.weight_type),
          .kv_dtype = kv_dtype_name(kv_type(options_)),
          .num_blocks = cache_->num_blocks(),
          .kv_bytes = cache_->num_bytes(),
          .kv_layout = groups_.layout,
          .num_host_blocks = cache_->num_host_blocks(),
          .fetch_time = fetch_time_,
          .num_parameters = parts_.model->num_parameters(),
          .takes_kv_at_once = runs_ahead(),
          .num_widened = parts_.num_widened,
          .notes = parts_.notes,
          .numerics = parts_.numerics,
          .ranks = {{device_name(options_), parts_.weights_bytes}}};
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
    put_choice(masks, step);
    stream().mark(next_);
    step.started = Clock::now();
  });
  if (!done.ok()) return done;
  next_ = (next_ + 1) % kStepsMax;
  ++num_started_;
  return {};
}

// The choice of a step's tokens; before it the forward pass, if that was put off.
void BackendAgent::put_choice(std::span<const scheduler::RowMask> masks, Step& step) {
  sampling_.set_masks(masks, step.result);
  const bool is_whole = is_put_off_ && !sampling_.has_masks();
  if (std::exchange(is_put_off_, false)) run_decode(is_whole);
  if (!is_whole) choose_tokens(targets_.size());
  sampling_.list(step.tokens);
}

Result<void> BackendAgent::collect(scheduler::StepResult& result) {
  LMTP_CHECK(num_started_ > 0);
  const int oldest = (next_ + kStepsMax - num_started_) % kStepsMax;
  Result<void> done = guarded([&] { take(oldest, result); });
  if (!done.ok()) num_started_ = 0;
  return done;
}

// The forward pass of a step, and its first tile of logits; or what choose() needs to run it.
void BackendAgent::put(const scheduler::StepPlan& plan, Step& step) {
  step.result.clear();
  slots_.apply(plan);
  note_blocks(plan);
  resident_batch_.mark_stale(plan.changes);
  scheduler::SlotTable::list_draws(plan, step.draws);
  list_input_records(plan);
  check_tokens(plan);
  list_targets(plan, targets_, step.result);
  pooling_.prepare(plan, slots_, next_, step.states);
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

// So that those that come next are ready when a plan has them.
void BackendAgent::note_blocks(const scheduler::StepPlan& plan) {
  if (pages_ == nullptr) return;
  const auto use = [&](const std::vector<BlockId>& blocks) {
    for (const BlockId block : blocks) pages_->use(block);
  };
  for (const scheduler::SlotStart& start : plan.changes.started) use(start.blocks);
  for (const scheduler::AdapterLoad& load : plan.adapter_loads) use(load.blocks);
  for (const scheduler::SlotBlock& change : plan.changes.blocks) pages_->use(change.block);
}

// Waits for a step's result. If the device is done already, how long it worked is not known:
// device_wait is then zero.
void BackendAgent::take(int oldest, scheduler::StepResult& result) {
  Step& step = steps_[oldest];
  const bool was_done = stream().has_reached(oldest);
  stream().wait_for(oldest);
  --num_started_;
  read_tokens(step.tokens, step.result);
  read_states(step.states, step.result);
  slots_.append(step.draws, step.result);
  const Clock::time_point now = Clock::now();
  if (!was_done) step.result.device_wait = now - std::max(step.started, last_finished_);
  last_finished_ = now;
  std::swap(step.result, result);  // each keeps its memory for the next step
}

// Lists which records of the step before hold the input tokens of this one (PlanRow::input_row).
void BackendAgent::list_input_records(const scheduler::StepPlan& plan) {
  input_records_.assign(plan.rows.size(), -1);
  const std::vector<std::int32_t>& records = steps_[(next_ + kStepsMax - 1) % kStepsMax].record_of;
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    const int input_row = plan.rows[i].input_row;
    if (input_row < 0) continue;
    LMTP_CHECK(num_started_ == 1 && input_row < static_cast<int>(records.size()), num_started_,
               input_row, records.size());
    input_records_[i] = records[static_cast<std::size_t>(input_row)];
    LMTP_CHECK(input_records_[i] >= 0, input_row);
  }
}

// Here, because the ops cannot check ids that are on a device.
void BackendAgent::check_tokens(const scheduler::StepPlan& plan) const {
  for (const scheduler::PlanRow& row : plan.rows) {
    const std::vector<TokenId>& tokens = slots_.at(row.slot).tokens;
    const auto first = static_cast<std::size_t>(row.first_position);
    const auto end = std::min(tokens.size(), first + static_cast<std::size_t>(row.num_tokens));
    for (std::size_t i = first; i < end; ++i) {
      LMTP_CHECK(tokens[i] >= 0 && tokens[i] < options_.config.vocab_size, tokens[i],
                 options_.config.vocab_size);
    }
  }
}

// One token of each sequence, and logits of each.
bool BackendAgent::is_decode(const scheduler::StepPlan& plan) const {
  return plan.num_tokens == static_cast<int>(plan.rows.size()) &&
         plan.num_logits == plan.num_tokens && plan.num_tokens <= options_.batch.rows_max();
}

// What varies is written to the host's memory, where the step reads it: where graphs are launched,
// one does all of the step.
void BackendAgent::decode(const scheduler::StepPlan& plan) {
  const ResidentBatch::Extent extent = ResidentBatch::extent_of(plan);
  // Padded where a graph of the shape may be launched again.
  shape_ = runs_ahead() ? decode_shape(extent.num_rows, options_.batch.rows_max(),
                                       extent.context_max, extent.num_blocks)
                        : StepShape{.num_rows = extent.num_rows,
                                    .context_max = extent.context_max,
                                    .num_table_blocks = extent.num_blocks};
  if (sampling_.prepare(plan, slots_, targets_, next_)) resident_batch_.forget_samples();
  resident_batch_.prepare(plan, slots_, input_records_, sampling_.rows(), next_);
  build_copies(plan, input_.copies);
  upload_.begin(Upload::size_of(input_.copies));
  const kernels::KvCopy* copies = upload_.add(input_.copies);
  upload_.send();
  write_blocks(plan, copies);
  decode_arrays_ = resident_batch_.arrays(shape_.num_rows);
  decode_arrays_.context_max = shape_.context_max;
  decode_arrays_.num_table_blocks = shape_.num_table_blocks;
  decode_arrays_.lora = adapters_.list(plan, slots_);
  logit_rows_ = decode_arrays_.logit_rows;
  sample_rows_ = {.rows = resident_batch_.sample_rows(),
                  .positions = decode_arrays_.positions,
                  .ids = decode_arrays_.ids};
  is_put_off_ = has_graphs() && !plan.waits_for_masks;
  if (!is_put_off_) run_decode(false);
}

// The forward pass, and if it is whole the choice, of padding too.
void BackendAgent::run_decode(bool is_whole) {
  shape_.chooses = is_whole;
  const std::int64_t num_moves = resident_batch_.num_moves() + sampling_.num_moves();
  run(shape_, next_, num_moves, [&] {
    resident_batch_.advance(shape_.num_rows, sampling_.records());
    hidden_ = parts_.model->forward(stream(), decode_arrays_, *cache_);
    write_logits(logit_rows_, std::min(shape_.num_rows, tile_));
    if (is_whole) choose_tokens(static_cast<std::size_t>(shape_.num_rows));
  });
}

// num_moves: of the memory that is this kind of step's.
void BackendAgent::run(const StepShape& shape, int turn, std::int64_t num_moves,
                       const std::function<void()>& work) {
  if (!has_graphs()) return work();
  graphs_.run(shape, turn, stream().num_scratch_moves() + num_moves, work);
}

// Of so many rows of logits; the first tile of them is there.
void BackendAgent::choose_tokens(std::size_t num_rows) {
  const auto tile = static_cast<std::size_t>(tile_);
  for (std::size_t first = 0; first < num_rows; first += tile) {
    const auto count = static_cast<std::int64_t>(std::min(tile, num_rows - first));
    if (first > 0) write_logits(logit_rows_ + first, count);
    sampling_.choose(sample_rows_, first, logits(count));
  }
}

// Of a step with prompts, if it is to be a graph. Its rows of logits must be one tile: hidden_ is
// not known behind a graph.
std::optional<StepShape> BackendAgent::shape_of(const model::InputArrays& exact) const {
  if (!has_graphs() || exact.num_tokens > kGraphTokensMax || std::ssize(targets_) > tile_ ||
      !pooling_.rows().empty()) {
    return std::nullopt;
  }
  return prompt_shape({.num_rows = static_cast<int>(exact.num_sequences),
                       .context_max = exact.context_max,
                       .num_table_blocks = exact.num_table_blocks,
                       .num_tokens = static_cast<int>(exact.num_tokens),
                       .chunk_max = exact.chunk_max,
                       .num_logits = static_cast<int>(targets_.size())},
                      {.tokens_max = options_.batch.max_tokens,
                       .rows_max = tile_,
                       .num_blocks = cache_->num_blocks()});
}

// Any other step. All that a graph of it reads is in the upload, at addresses that its shape fixes;
// it uses no MappedMemory, so that one serves both turns.
void BackendAgent::compute(const scheduler::StepPlan& plan) {
  build_input(plan, slots_, input_records_, input_);
  const std::optional<StepShape> shape = shape_of(model::arrays_of(input_));
  if (shape) pad_input(*shape, input_);
  if (sampling_.prepare(plan, slots_, targets_, next_)) resident_batch_.forget_samples();
  list_input_tokens();
  upload_.begin(Upload::size_of(input_tokens_) + upload_size(input_) + sampling_.rows_size() +
                Upload::size_of(pooling_.rows()));
  std::int32_t* ids = upload_.add_mutable(input_tokens_);
  model::InputArrays arrays = add_input(input_, upload_);
  sample_rows_ = sampling_.add_rows(upload_);
  const std::int32_t* state_rows = upload_.add(pooling_.rows());
  upload_.send();
  arrays.ids = ids;
  write_blocks(plan, std::exchange(arrays.copies, nullptr));
  arrays.num_copies = 0;
  arrays.lora = adapters_.list(plan, slots_);
  logit_rows_ = arrays.logit_rows;
  if (std::ranges::any_of(input_records_, [](std::int32_t record) { return record >= 0; })) {
    draw_ids(ids);
  }
  sample_rows_.ids = ids + arrays.num_tokens;
  std::int64_t num_logits = std::min<std::int64_t>(tile_, std::ssize(targets_));
  if (shape) {
    arrays.chunk_max = shape->chunk_max;
    arrays.context_max = shape->context_max;
    arrays.num_table_blocks = shape->num_table_blocks;
    num_logits = shape->num_logits;
  }
  const auto work = [&] {
    hidden_ = parts_.model->forward(stream(), arrays, *cache_);
    if (!pooling_.rows().empty()) pooling_.compute(hidden_, state_rows);
    if (num_logits > 0) write_logits(logit_rows_, num_logits);
  };
  if (shape) {
    run(*shape, 0, upload_.num_moves(), work);
  } else {
    work();
  }
}

// In this order: an adapter's blocks may hold what goes to the host.
void BackendAgent::write_blocks(const scheduler::StepPlan& plan, const kernels::KvCopy* copies) {
  cache_->copy_blocks(stream(), copies, static_cast<std::int64_t>(input_.copies.size()));
  adapters_.load(plan.adapter_loads, *cache_);
}

void BackendAgent::list_input_tokens() {
  input_tokens_ = input_.ids;
  for (const std::int32_t row : input_.logit_rows) {
    input_tokens_.push_back(input_.ids[static_cast<std::size_t>(row)]);
  }
}

// Takes those that the step before has drawn from its records.
void BackendAgent::draw_ids(std::int32_t* ids) {
  kernels::drawn_ids(stream(), {.tokens = ids,
                                .count = static_cast<std::int64_t>(input_tokens_.size()),
                                .records = sampling_.records(),
                                .ids = ids});
}

// The first `count` rows of logits_.
kernels::Matrix<float> BackendAgent::logits(std::int64_t count) const {
  return kernels::make_matrix(logits_.floats(), count, std::int64_t{options_.config.vocab_size});
}

void BackendAgent::write_logits(const std::int32_t* rows, std::int64_t count) {
  parts_.model->logits(stream(), hidden_, rows, logits(count));
}

// Buffers may be reused only after all queued work has ended; whether the device is lost shows only
// then, too. The next plan starts all that runs once more.
void BackendAgent::wait_after_failure() {
  slots_ = {};
  is_put_off_ = false;
  try {
    stream().synchronize();
  } catch (const DeviceError& error) {
    is_lost_ = error.kind() == DeviceError::Kind::kSticky;
  }
}

}  // namespace lmtp::agent
