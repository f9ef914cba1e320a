// BackendAgent: the ModelAgent over a kernels::Backend. On a device work is only queued, what
// decode steps need of running sequences stays there (ResidentBatch), repeated shapes are launched
// as graphs, and a step is queued before the last one is over. On a CPU each call computes.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/memory.h"
#include "kernels/stream.h"
#include "kernels/worker_pool.h"
#include "lmtp/agent/agent_options.h"
#include "lmtp/model/causal_lm.h"
#include "lmtp/model/communicator.h"
#include "lmtp/model/kv_cache.h"
#include "lmtp/model/kv_pages.h"
#include "lmtp/model/model_input.h"
#include "lmtp/scheduler/model_agent.h"
#include "lmtp/scheduler/slot_table.h"
#include "resident_batch.h"
#include "staged_memory.h"
#include "state_pooling.h"
#include "step_adapters.h"
#include "step_graphs.h"
#include "step_sampling.h"

namespace lmtp::agent {

// What the agent owns of a loaded model.
struct AgentParts {
  std::unique_ptr<kernels::WorkerPool> pool;
  std::unique_ptr<kernels::Stream> stream;
  std::shared_ptr<model::Communicator> communicator;  // with the group that it belongs to
  std::unique_ptr<model::CausalLM> model;
  std::vector<std::string> notes;  // of the weights
  int num_widened = 0;             // as well
  std::int64_t weights_bytes = 0;  // as well
  std::string numerics;            // AgentInfo's
};

class BackendAgent : public scheduler::ModelAgent {
 public:
  // Sizes the KV cache, last of all that it allocates. `options`: of its rank, which has its share
  // of what the model's have. Throws what allocations do.
  BackendAgent(AgentParts parts, const AgentOptions& options, int num_blocks);

  scheduler::AgentInfo info() const override;
  Result<void> forward(const scheduler::StepPlan& plan) override;
  Result<void> choose(std::span<const scheduler::RowMask> masks) override;
  using ModelAgent::collect;
  Result<void> collect(scheduler::StepResult& result) override;
  bool runs_ahead() const override { return parts_.stream->device_api() != nullptr; }
  bool is_lost() const override { return is_lost_; }

  // Null on a device.
  const model::KvPages* pages() const { return pages_.get(); }
  // For tests: from now on pages come as they are written.
  void leave_pages() { pages_.reset(); }

 private:
  using Clock = std::chrono::steady_clock;

  static constexpr int kStepsMax = kernels::Stream::kNumMarks;

  // A started step.
  struct Step {
    scheduler::StepResult result;
    PendingTokens tokens;
    PendingStates states;
    std::vector<std::int32_t> record_of;  // each row's last record; -1: none
    std::vector<scheduler::SlotDraw> draws;
    Clock::time_point started;
  };

  kernels::Stream& stream() { return *parts_.stream; }
  Result<void> guarded(const std::function<void()>& work);
  void put(const scheduler::StepPlan& plan, Step& step);
  void take(int oldest, scheduler::StepResult& result);
  void note_blocks(const scheduler::StepPlan& plan);
  void list_input_records(const scheduler::StepPlan& plan);
  void check_tokens(const scheduler::StepPlan& plan) const;
  bool is_decode(const scheduler::StepPlan& plan) const;
  bool has_graphs() const { return runs_ahead() && options_.debug.step_graphs; }
  void decode(const scheduler::StepPlan& plan);
  void run_decode(bool is_whole);
  void choose_tokens(std::size_t num_rows);
  void compute(const scheduler::StepPlan& plan);
  std::optional<StepShape> shape_of(const model::InputArrays& exact) const;
  void run(const StepShape& shape, int turn, std::int64_t num_moves,
           const std::function<void()>& work);
  void put_choice(std::span<const scheduler::RowMask> masks, Step& step);
  void capture_usual_steps();
  void list_input_tokens();
  void write_blocks(const scheduler::StepPlan& plan, const kernels::KvCopy* copies);
  void draw_ids(std::int32_t* ids);
  kernels::Matrix<float> logits(std::int64_t count) const;
  void write_logits(const std::int32_t* rows, std::int64_t count);
  void wait_after_failure();
  void measure_fetches();

  const AgentOptions options_;
  AgentParts parts_;
  const int tile_;  // rows of logits that are computed and sampled at a time
  Upload upload_;
  scheduler::SlotTable slots_;
  const model::KvGroups groups_;
  ResidentBatch resident_batch_;
  StepGraphs graphs_;
  StepSampling sampling_;
  StatePooling pooling_;
  const kernels::Memory logits_;  // [tile_, vocab_size] f32
  std::unique_ptr<model::KvCache> cache_;
  std::unique_ptr<model::KvPages> pages_;
  StepAdapters adapters_;
  model::ModelInput input_;
  std::vector<LogitTarget> targets_;
  std::vector<std::int32_t> input_records_;  // of the rows whose input is in one; else -1
  std::vector<std::int32_t> input_tokens_;   // input_.ids, then those of its rows of logits
  // Of the step between forward() and choose().
  bool is_forwarded_ = false;
  kernels::Matrix<const float> hidden_;
  const std::int32_t* logit_rows_ = nullptr;
  SampleRows sample_rows_;
  StepShape shape_;  // of a decode step, as its arrays
  model::InputArrays decode_arrays_;
  bool is_put_off_ = false;  // the forward pass, to run with the choice

  Step steps_[kStepsMax];
  int next_ = 0;         // index in steps_, of the stream's marks, and turn of MappedMemory
  int num_started_ = 0;  // steps between choose() and collect(): the last ones before next_
  Clock::time_point last_finished_;
  bool is_lost_ = false;
  std::chrono::nanoseconds fetch_time_{0};  // AgentInfo's
};

}  // namespace lmtp::agent
