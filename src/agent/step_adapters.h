// StepAdapters: the adapters whose weights are in blocks of the KV cache, and which rows of a step
// have which.
#pragma once

#include <map>
#include <vector>

#include "kernels/lora.h"
#include "lmtp/base/ids.h"
#include "lmtp/model/kv_cache.h"
#include "lmtp/model/lora_adapter.h"
#include "lmtp/request/adapter.h"
#include "lmtp/scheduler/slot_table.h"
#include "lmtp/scheduler/step_plan.h"

namespace lmtp::agent {

// What read_adapter() gives.
class LoadedAdapter : public Adapter {
 public:
  LoadedAdapter(std::string name, int num_blocks, model::LoraWeights weights)
      : Adapter(std::move(name), num_blocks), weights_(std::move(weights)) {}
  const model::LoraWeights& weights() const { return weights_; }

 private:
  const model::LoraWeights weights_;
};

// Owner: an agent on a CPU; one thread.
class StepAdapters {
 public:
  // Writes the weights to their blocks.
  void load(const std::vector<scheduler::AdapterLoad>& loads, const model::KvCache& cache);

  // Of all tokens of a plan, which are packed in the order of its rows. Valid until the next call.
  // REQUIRES: the adapters of its slots were loaded, and their blocks not used for anything else.
  kernels::LoraRows list(const scheduler::StepPlan& plan, const scheduler::SlotTable& slots);

 private:
  struct Resident {
    std::vector<BlockId> blocks;
    std::vector<void*> pieces;
    std::int64_t piece_size = 0;
    kernels::ElementType type = kernels::ElementType::kF32;
    std::vector<kernels::LoraDelta> deltas;
    std::vector<std::int32_t> first_delta;
  };

  // By number. Of those that have gone some are left; each block is in one at most.
  std::map<int, Resident> residents_;
  // Of the step.
  std::vector<kernels::LoraRow> rows_;
  std::vector<kernels::LoraAdapter> adapters_;
};

}  // namespace lmtp::agent
