// AgentOptions: what an agent is made from.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "kernels/backend.h"
#include "kernels/linear.h"
#include "lmtp/base/batch_limits.h"
#include "lmtp/base/model_source.h"
#include "lmtp/model/model_config.h"
#include "lmtp/model/rank_group.h"
#include "lmtp/scheduler/debug_options.h"

namespace lmtp::agent {

struct AgentOptions {
  ModelSource source;
  model::ModelConfig config;       // of that source: model::load_model_config
  std::optional<int> cuda_device;  // the driver's number; none: the CPU
  // Tensor parallelism: the model is divided among so many. On devices, from cuda_device on, one
  // for each; threads and memory below are of all ranks together.
  int num_ranks = 1;                                      // [1, model::kRanksMax]
  model::Transport transport = model::Transport::kLocal;  // what their sums go through
  // float16 is for devices.
  kernels::WeightType weight_type = kernels::WeightType::kF32;
  // Of keys and values; none: kv_type() says. float16 is for devices.
  std::optional<kernels::ElementType> kv_cache_type;
  int num_threads = 0;              // of the host; 0: as many as the machine has processors
  std::int64_t kv_cache_bytes = 0;  // > 0
  // Of the host's memory, for what is evicted from a device's KV cache; there it is page-locked.
  std::int64_t swap_bytes = 0;
  BatchLimits batch;       // of any plan
  int context_length = 0;  // the longest stream; 0: the model's own
  bool force = false;      // as config was read: model::ConfigOptions
  // Called, while an agent is made, if the device is lost to this process for good, with the
  // reason; on any thread. May be null.
  std::function<void(const std::string& reason)> on_device_gone;
  scheduler::DebugOptions debug;
};

// "float32", "bfloat16", "float16", "int8".
const char* dtype_name(kernels::WeightType type);

// "float32", "bfloat16", "float16", "fp8_e4m3".
const char* kv_dtype_name(kernels::ElementType type);

// Of keys and values: as the options say, else f32 where weights are, otherwise 16 bits.
kernels::ElementType kv_type(const AgentOptions& options);

// "cpu", "cuda:0"; of several ranks "cuda:0,1".
std::string device_name(const AgentOptions& options);

}  // namespace lmtp::agent
