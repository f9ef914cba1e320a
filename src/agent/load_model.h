// What loading a model is on any device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/worker_pool.h"
#include "lmtp/agent/model_agent.h"
#include "lmtp/base/result.h"
#include "lmtp/hub/model_source.h"
#include "lmtp/model/causal_lm.h"
#include "lmtp/model/weights.h"

namespace lmtp::agent {

// Weights of the model, or what is wrong with its config.
Result<std::int64_t> count_weights(const model::ModelConfig& config);

// Loads the weights of `source` into `store`. The error names the tensor or file.
Result<std::unique_ptr<model::CausalLM>> load_model(
    const hub::ModelSource& source, const model::ModelConfig& config, kernels::WorkerPool& pool,
    model::WeightStore& store, int max_batched_tokens, const LoadProgress& progress);

// How many blocks a KV cache of so many bytes has, or why they are not enough for one stream of
// `context_length` tokens (0: the model's own).
Result<int> count_blocks(const model::ModelConfig& config, kernels::ElementType type,
                         std::int64_t kv_cache_bytes, int context_length);

// "1.5 GiB".
std::string gibibytes(std::int64_t num_bytes);

}  // namespace lmtp::agent
