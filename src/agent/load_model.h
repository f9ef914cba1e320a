// What loading a model is on any device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/worker_pool.h"
#include "lmtp/agent/agent_options.h"
#include "lmtp/base/result.h"
#include "lmtp/model/causal_lm.h"
#include "lmtp/model/weights.h"
#include "lmtp/scheduler/model_agent.h"

namespace lmtp::agent {

// Tokens that a stream may have.
int longest_stream(const AgentOptions& options);

// Weights of the model, or why it cannot be computed with these options.
Result<std::int64_t> count_weights(const AgentOptions& options);

// The pool of options.num_threads threads.
std::unique_ptr<kernels::WorkerPool> make_pool(const AgentOptions& options);

struct LoadedModel {
  std::unique_ptr<model::CausalLM> model;
  std::vector<std::string> notes;  // AgentInfo::notes
};

// Loads the weights of options.source, num_weights of them, into `store`. The error names the
// tensor or file.
Result<LoadedModel> load_model(const AgentOptions& options, std::int64_t num_weights,
                               model::WeightStore& store, const scheduler::LoadProgress& progress);

// Blocks of the smallest KV cache: those of one stream of options.context_length tokens (0: the
// model's own), and block 0, which is never handed out.
std::int64_t num_blocks_min(const AgentOptions& options);

// How many blocks the KV cache has, or why they are not enough for one stream. Of what is free now,
// where options.kv_cache_bytes does not say.
Result<int> count_blocks(const AgentOptions& options);

// Of the logits that a device's agent computes at a time.
std::size_t logits_bytes(const AgentOptions& options);

// The most that the ops of a model with a KV cache of so many blocks are given.
kernels::OpLimits op_limits(const AgentOptions& options, int num_blocks);

}  // namespace lmtp::agent
