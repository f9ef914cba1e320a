#include "lmtp/agent/cuda_agent.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "batch_builder.h"
#include "decode_graphs.h"
#include "device_input.h"
#include "kernels/device.h"
#include "kernels/device_api.h"
#include "kernels/sample.h"
#include "kernels/stream.h"
#include "kernels/worker_pool.h"
#include "lmtp/agent/model_memory.h"
#include "lmtp/base/check.h"
#include "lmtp/base/text.h"
#include "lmtp/model/causal_lm.h"
#include "lmtp/model/kv_cache.h"
#include "lmtp/model/weight_store.h"
#include "load_model.h"
#include "numerics_id.h"
#include "resident_batch.h"
#include "staged_memory.h"
#include "step_sampling.h"

namespace lmtp::agent {
namespace {

using kernels::DeviceError;

ErrorCode cause_of(const std::exception& thrown) {
  const auto* error = dynamic_cast<const DeviceError*>(&thrown);
  if (error == nullptr || error->kind() == DeviceError::Kind::kFailed) {
    return exception_code(thrown);
  }
  const bool no_memory = error->kind() == DeviceError::Kind::kOutOfMemory;
  return no_memory ? ErrorCode::kUnavailable : ErrorCode::kDeviceLost;
}

// What the agent owns of a loaded model.
struct AgentParts {
  std::unique_ptr<kernels::WorkerPool> pool;
  std::unique_ptr<kernels::Stream> stream;
  std::unique_ptr<model::CausalLM> model;
  std::vector<std::string> notes;         // of the weights
  std::unique_ptr<model::KvCache> cache;  // made last
};

class CudaAgent : public scheduler::ModelAgent {
 public:
  CudaAgent(AgentParts parts, const AgentOptions& options)
      : options_(options),
        parts_(std::move(parts)),
        numerics_(numerics_id(options, parts_.stream->backend())),
        upload_(*parts_.stream),
        resident_batch_(*parts_.stream, options.batch.rows_max(), longest_stream(options)),
        graphs_(*parts_.stream),
        sampling_(*parts_.stream, options.config.vocab_size, options.batch,
                  options.batch.rows_max()),
        logits_(kernels::Memory::allocate(parts_.stream->backend(), logits_bytes(options))) {}

  // Sized by what is free after all else that a step may need is allocated. REQUIRES: before the
  // first step.
  Result<void> make_cache() {
    const auto num_blocks = count_blocks(options_);
    if (!num_blocks.ok()) return num_blocks.error();
    (void)stream().scratch(stream().backend().scratch_bytes(op_limits(options_, *num_blocks)));
    parts_.cache =
        std::make_unique<model::KvCache>(options_.config, *num_blocks, stream(), kv_type(options_));
    stream().synchronize();
    return {};
  }

  scheduler::AgentInfo info() const override {
    return {.device = device_name(options_),
            .dtype = dtype_name(options_.weight_type),
            .num_blocks = parts_.cache->num_blocks(),
            .kv_bytes = parts_.cache->num_bytes(),
            .num_parameters = parts_.model->num_parameters(),
            .takes_kv_at_once = true,
            .notes = parts_.notes,
            .numerics = numerics_};
  }

  Result<scheduler::StepResult> execute(const scheduler::StepPlan& plan) override {
    if (const auto started = start(plan); !started.ok()) return started.error();
    return finish();
  }

  bool runs_ahead() const override { return true; }

  Result<void> start(const scheduler::StepPlan& plan) override {
    LMTP_CHECK(!plan.empty() && plan.num_tokens <= options_.batch.max_tokens, plan.num_tokens,
               options_.batch.max_tokens);
    LMTP_CHECK(num_started_ < kStepsMax, num_started_);
    try {
      stream().use();
      put(plan, steps_[next_]);
    } catch (const std::exception& exception) {
      wait_after_failure();
      return Error{cause_of(exception), exception.what()};
    }
    next_ = (next_ + 1) % kStepsMax;
    ++num_started_;
    return {};
  }

  Result<scheduler::StepResult> finish() override {
    LMTP_CHECK(num_started_ > 0);
    const int oldest = (next_ + kStepsMax - num_started_) % kStepsMax;
    try {
      stream().use();
      return take(oldest);
    } catch (const std::exception& exception) {
      wait_after_failure();
      num_started_ = 0;
      return Error{cause_of(exception), exception.what()};
    }
  }

  bool is_lost() const override { return is_lost_; }

 private:
  using Clock = std::chrono::steady_clock;

  static constexpr int kStepsMax = kernels::Stream::kNumMarks;

  // A started step.
  struct Step {
    scheduler::StepResult result;
    PendingTokens tokens;
    std::vector<std::int32_t> record_of;  // each row's last record; -1: none
    Clock::time_point started;
  };

  kernels::Stream& stream() { return *parts_.stream; }

  // Queues a step.
  void put(const scheduler::StepPlan& plan, Step& step) {
    step = {};
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
    step.tokens = sampling_.fetch();
    stream().mark(next_);
    step.started = Clock::now();
  }

  // Waits for a step's result. If the device is done already, how long it worked is not known:
  // device_wait is then zero.
  scheduler::StepResult take(int oldest) {
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
  void list_input_records(const scheduler::StepPlan& plan) {
    input_records_.clear();
    if (plan.rows.front().input_row < 0) {
      LMTP_CHECK(num_started_ == 0, num_started_);
      return;
    }
    LMTP_CHECK(num_started_ == 1 && is_decode(plan), num_started_, plan.num_tokens);
    const std::vector<std::int32_t>& records =
        steps_[(next_ + kStepsMax - 1) % kStepsMax].record_of;
    for (const scheduler::PlanRow& row : plan.rows) {
      LMTP_CHECK(row.input_row >= 0 && row.input_row < static_cast<int>(records.size()),
                 row.input_row, records.size());
      input_records_.push_back(records[static_cast<std::size_t>(row.input_row)]);
      LMTP_CHECK(input_records_.back() >= 0, row.input_row);
    }
  }

  // Here, because the ops cannot check ids that are on the device.
  void check_token(TokenId id) const {
    LMTP_CHECK(id >= 0 && id < options_.config.vocab_size, id, options_.config.vocab_size);
  }

  // One token of each sequence, and logits of each.
  bool is_decode(const scheduler::StepPlan& plan) const {
    return plan.num_tokens == static_cast<int>(plan.rows.size()) &&
           plan.num_logits == plan.num_tokens && plan.num_tokens <= options_.batch.rows_max();
  }

  void decode(const scheduler::StepPlan& plan) {
    const ResidentBatch::Extent extent = resident_batch_.place(plan);
    if (input_records_.empty()) {
      for (const scheduler::PlanRow& row : plan.rows) {
        check_token(row.sequence->tokens[static_cast<std::size_t>(row.first_position)]);
      }
    }
    targets_.clear();
    for (const int row : resident_batch_.order()) {
      targets_.push_back({.plan_row = row, .index = 0});
    }
    const DecodeShape shape = decode_shape(extent.num_rows, options_.batch.rows_max(),
                                           extent.context_max, extent.num_blocks);
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
    parts_.cache->copy_blocks(stream(), copies, static_cast<std::int64_t>(input_.copies.size()));
    const auto work = [&] {
      const auto hidden = parts_.model->forward(stream(), arrays, *parts_.cache);
      write_logits(hidden, arrays.logit_rows, shape.num_rows);
    };
    if (options_.debug.decode_graphs) {
      graphs_.run(shape, stream().num_scratch_moves(), work);
    } else {
      work();
    }
    sampling_.choose({.rows = resident_batch_.sample_rows(), .positions = arrays.positions}, 0,
                     logits(extent.num_rows));
  }

  // Any other step.
  void compute(const scheduler::StepPlan& plan) {
    build_input(plan, input_);
    for (const TokenId id : input_.ids) check_token(id);
    sampling_.prepare(plan, targets_);
    upload_.begin(upload_size(input_) + sampling_.rows_size() + sampling_.counts_size());
    const model::InputArrays arrays = add_input(input_, upload_);
    const SampleRows rows = sampling_.add_rows(upload_);
    sampling_.add_counts(upload_);
    upload_.send();
    const auto hidden = parts_.model->forward(stream(), arrays, *parts_.cache);
    const auto tile = static_cast<std::size_t>(options_.batch.rows_max());
    for (std::size_t first = 0; first < targets_.size(); first += tile) {
      const std::size_t count = std::min(tile, targets_.size() - first);
      write_logits(hidden, arrays.logit_rows + first, static_cast<std::int64_t>(count));
      sampling_.choose(rows, first, logits(static_cast<std::int64_t>(count)));
    }
  }

  // The first `count` rows of logits_.
  kernels::Matrix<float> logits(std::int64_t count) const {
    return kernels::make_matrix(logits_.floats(), count, std::int64_t{options_.config.vocab_size});
  }

  void write_logits(kernels::Matrix<const float> hidden, const std::int32_t* rows,
                    std::int64_t count) {
    parts_.model->logits(stream(), hidden, rows, logits(count));
  }

  // Buffers may be reused only after all queued work has ended; whether the device is lost shows
  // only then, too.
  void wait_after_failure() {
    resident_batch_.invalidate();
    try {
      stream().synchronize();
    } catch (const DeviceError& error) {
      is_lost_ = error.kind() == DeviceError::Kind::kSticky;
    }
  }

  const AgentOptions options_;
  AgentParts parts_;
  const std::string numerics_;
  Upload upload_;
  ResidentBatch resident_batch_;
  DecodeGraphs graphs_;
  StepSampling sampling_;
  const kernels::Memory logits_;  // [rows_max, vocab_size] f32
  model::ModelInput input_;
  std::vector<LogitTarget> targets_;
  std::vector<std::int32_t> input_records_;  // for each row of a plan made ahead; else empty
  Step steps_[kStepsMax];
  int next_ = 0;         // index in steps_ and of the stream's marks
  int num_started_ = 0;  // unfinished steps: the last ones before next_
  Clock::time_point last_finished_;
  bool is_lost_ = false;
};

// A guard behind the registry's decision, which lets a static server's only model be tried, and
// since which memory may have been taken: fails before the loading instead of half-way through it.
Result<void> check_fit(const AgentOptions& options, std::int64_t num_weights,
                       const kernels::Stream& stream) {
  const std::int64_t needed = num_weights * weight_bytes(options.weight_type);
  const kernels::DeviceMemory memory = stream.device_api()->memory();
  if (needed > memory.free_bytes) {
    return Error{ErrorCode::kUnavailable,
                 "the weights take " + gib_text(needed) + " as " + dtype_name(options.weight_type) +
                     ", and of the " + gib_text(memory.total_bytes) + " of " +
                     device_name(options) + " " + gib_text(memory.free_bytes) +
                     " are free; serve a smaller model, or free some of its memory"};
  }
  return {};
}

// A lost device works again after a reset, which needs all that was allocated on it to be freed.
void recover_device(const kernels::DeviceApi& device, int number) {
  try {
    device.use_device(number);
    (void)device.memory();
  } catch (const DeviceError& error) {
    if (error.kind() != DeviceError::Kind::kSticky) throw;
    device.reset();
    device.use_device(number);
  }
}

Result<AgentParts> load_parts(const AgentOptions& options, const kernels::Backend& backend,
                              const scheduler::LoadProgress& progress) {
  const auto num_weights = count_weights(options);
  if (!num_weights.ok()) return num_weights.error();
  AgentParts parts;
  parts.pool = make_pool(options);
  recover_device(*backend.device, *options.cuda_device);
  parts.stream = std::make_unique<kernels::Stream>(backend, *parts.pool, *options.cuda_device);
  if (const auto fit = check_fit(options, *num_weights, *parts.stream); !fit.ok()) {
    return fit.error();
  }
  {
    const auto store = model::make_device_store(*parts.stream, options.weight_type);
    auto loaded = load_model(options, *num_weights, *store, progress);
    if (!loaded.ok()) return loaded.error();
    parts.model = std::move(loaded->model);
    parts.notes = std::move(loaded->notes);
    parts.stream->synchronize();
  }
  return parts;
}

void report_device_gone(const AgentOptions& options, const std::string& reason) {
  if (options.on_device_gone) options.on_device_gone(reason);
}

}  // namespace

Result<std::unique_ptr<scheduler::ModelAgent>> make_cuda_agent(
    const AgentOptions& options, const scheduler::LoadProgress& progress) {
  LMTP_CHECK(options.batch.max_tokens >= 1 && options.cuda_device.has_value(),
             options.batch.max_tokens);
  LMTP_CHECK(options.weight_type != kernels::WeightType::kInt8);
  if (options.debug.backend == nullptr) {
    const kernels::cuda::Probe probe = kernels::cuda::probe(*options.cuda_device);
    if (!probe.available) {
      report_device_gone(options, probe.reason);
      return Error{ErrorCode::kUnavailable, "no CUDA: " + probe.reason};
    }
  }
  try {
    const kernels::Backend& backend =
        options.debug.backend != nullptr ? *options.debug.backend : kernels::cuda::backend();
    auto parts = load_parts(options, backend, progress);
    if (!parts.ok()) return parts.error();
    auto agent = std::make_unique<CudaAgent>(std::move(*parts), options);
    if (const auto cache = agent->make_cache(); !cache.ok()) return cache.error();
    return std::unique_ptr<scheduler::ModelAgent>(std::move(agent));
  } catch (const DeviceError& error) {
    if (error.kind() == DeviceError::Kind::kOutOfMemory) {
      return Error{
          ErrorCode::kUnavailable,
          "the memory of " + device_name(options) +
              " is full; serve a smaller model, give a smaller --kv-cache, or free some of "
              "it"};
    }
    if (error.kind() != DeviceError::Kind::kFailed) report_device_gone(options, error.what());
    return Error{cause_of(error), std::string("the model cannot be loaded: ") + error.what()};
  } catch (const std::exception& exception) {
    return Error{cause_of(exception),
                 std::string("the model cannot be loaded: ") + exception.what()};
  }
}

}  // namespace lmtp::agent
