// StatePooling: from hidden states to the embeddings of a step's result. The ops write the states
// that are asked for to the host's memory, where they are added up, token by token in the order of
// the prompt, so that neither a chunk's end nor what runs beside it changes a bit.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/matrix.h"
#include "kernels/stream.h"
#include "lmtp/base/pooling.h"
#include "lmtp/model/causal_lm.h"
#include "lmtp/scheduler/slot_table.h"
#include "lmtp/scheduler/step_plan.h"
#include "staged_memory.h"

namespace lmtp::agent {

// The states that a step writes, and what they are added to.
struct PendingStates {
  struct Row {
    int plan_row = 0;
    int num_states = 0;
    int num_pooled = 0;  // of the whole prompt, where the row has its end; else 0
    std::shared_ptr<std::vector<double>> sum;  // [width], of one sequence from its SlotStart on
  };
  std::vector<Row> rows;
  const float* states = nullptr;  // [sum of num_states, width], in host memory
  std::int64_t width = 0;
};

// Adds them up, and writes the embeddings that are whole to the result's rows; numbers that are not
// finite are the error of their row. REQUIRES: the stream has executed compute(); the states of the
// steps before have been read.
void read_states(const PendingStates& pending, scheduler::StepResult& result);

// Owner: an agent; one thread.
class StatePooling {
 public:
  // Both must outlive this.
  StatePooling(kernels::Stream& stream, model::CausalLM& model);

  // Lists a step's states. turn: MappedMemory's. REQUIRES: `slots` has applied the plan.
  void prepare(const scheduler::StepPlan& plan, const scheduler::SlotTable& slots, int turn,
               PendingStates& pending);
  // The tokens of that step whose states are asked for, as they are packed; empty: none.
  const std::vector<std::int32_t>& rows() const { return rows_; }
  // Queues the ops. rows: rows(), where the ops run. hidden: what the forward pass has returned.
  // REQUIRES: rows() is not empty.
  void compute(kernels::Matrix<const float> hidden, const std::int32_t* rows);

 private:
  kernels::Stream& stream_;
  model::CausalLM& model_;
  const std::int64_t width_;
  std::vector<std::shared_ptr<std::vector<double>>> sums_;  // by slot; null: no embedding
  std::vector<std::int32_t> rows_;
  MappedMemory out_;  // [rows_.size(), width_] f32
};

}  // namespace lmtp::agent
