// A ModelAgent that computes on the CPU: weights in float32, bfloat16 or int8, all else in float32.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/backend.h"
#include "kernels/linear.h"
#include "lmtp/agent/model_agent.h"
#include "lmtp/base/result.h"
#include "lmtp/hub/model_source.h"
#include "lmtp/model/model_config.h"

namespace lmtp::agent {

struct CpuAgentOptions {
  hub::ModelSource source;
  model::ModelConfig config;        // of that source: model::load_model_config
  int num_threads = 0;              // 0: as many as the machine has processors
  std::int64_t kv_cache_bytes = 0;  // 0: default_kv_cache_bytes()
  int max_batched_tokens = 512;     // of any plan
  kernels::WeightType weight_type = kernels::WeightType::kF32;
  int context_length = 0;                     // the longest stream; 0: the model's own
  const kernels::Backend* backend = nullptr;  // outlives the agent; null: kernels::cpu_backend()
};

// "float32", "bfloat16", "int8".
const char* dtype_name(kernels::WeightType type);

// Bytes that one weight of a matrix takes.
constexpr std::int64_t weight_bytes(kernels::WeightType type) {
  return 4 / kernels::inputs_per_unit(type);
}

// min(4 GiB, a quarter of the memory that is free now, by the machine's and the control group's
// count).
std::int64_t default_kv_cache_bytes();

// Loads the model: seconds. Any thread; the agent may then be used from another one.
// The error names the file and the remedy.
Result<std::unique_ptr<ModelAgent>> make_cpu_agent(const CpuAgentOptions& options,
                                                   const LoadProgress& progress);

}  // namespace lmtp::agent
