// Loading a model, on any device.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "kernels/worker_pool.h"
#include "lmtp/agent/agent_options.h"
#include "lmtp/base/processors.h"
#include "lmtp/base/result.h"
#include "lmtp/model/causal_lm.h"
#include "lmtp/model/kv_cache.h"
#include "lmtp/model/weights.h"
#include "lmtp/scheduler/model_agent.h"

namespace lmtp::agent {

// The most tokens of a stream.
int longest_stream(const AgentOptions& options);

// The number of the model's weights, or why it cannot be served with these options.
Result<std::int64_t> count_weights(const AgentOptions& options);

// Whether the ranks have a device each, of so many. REQUIRES: options.cuda_device is one of them.
Result<void> enough_devices(const AgentOptions& options, int num_devices);

// Bytes that they take in memory, those of one rank, by config.json, and for 16 bits that stay so
// by the size of the files: on the safe side where it does not say which matrices are quantised.
// REQUIRES: count_weights() is ok.
std::int64_t count_weight_bytes(const AgentOptions& options);

// A folder's weights in the format that is preferred, by name; empty where they are not there.
std::vector<std::filesystem::path> weight_files(const std::string& folder);

// Whether matrices of the model may stay codes in memory.
bool may_have_codes(const AgentOptions& options);

// The pool of options.num_threads threads.
std::unique_ptr<kernels::WorkerPool> make_pool(const AgentOptions& options);

struct LoadedModel {
  std::unique_ptr<model::CausalLM> model;
  std::vector<std::string> notes;  // AgentInfo::notes
  int num_widened = 0;             // AgentInfo::num_widened
  std::int64_t weights_bytes = 0;  // RankInfo::weights_bytes
};

// What rank `rank` of options.num_ranks is made from: its share of heads, threads and memory. Its
// config is model::rank_config's. REQUIRES: count_weights() is ok.
AgentOptions options_of_rank(const AgentOptions& options, int rank);

// What the ranks' threads are bound to, of the `processors` that there are: shares of them, where
// they have several nodes of memory and ranks compute on them. Empty: to nothing.
std::vector<Binding> rank_bindings(const AgentOptions& options,
                                   const std::vector<Processor>& processors);

// Loads the num_weights weights of options.source into `store`, or the share of them that the
// communicator's rank has. The error names the tensor or file. `communicator` outlives the model.
Result<LoadedModel> load_model(const AgentOptions& options, std::int64_t num_weights,
                               model::WeightStore& store, model::Communicator& communicator,
                               const scheduler::LoadProgress& progress);

// How the model's layers share blocks of the KV cache, on each rank, with what steps of these
// options write.
model::KvGroups kv_groups(const AgentOptions& options);

// Blocks of the smallest KV cache: those of one stream of options.context_length tokens (0: the
// model's own), and block 0, which is never handed out.
std::int64_t num_blocks_min(const AgentOptions& options);

// Blocks of options.swap_bytes.
int count_host_blocks(const AgentOptions& options);

// Bytes of one block of the KV cache, of all ranks together. REQUIRES: count_weights() is ok.
std::int64_t kv_block_bytes(const AgentOptions& options);

// What one of them holds of an adapter. REQUIRES: the same; one rank.
std::int64_t adapter_block_bytes(const AgentOptions& options);

// The number of blocks of the KV cache, or why they are not enough for one stream.
// REQUIRES: options.kv_cache_bytes > 0.
Result<int> count_blocks(const AgentOptions& options);

// Rows of logits that an agent computes at a time, and their bytes: on a device those of all
// streams, on a CPU 13 MB for a vocabulary of 50,000.
int logit_rows_max(const AgentOptions& options);
std::size_t logits_bytes(const AgentOptions& options);

// What an exception of a loading or a step means.
ErrorCode cause_of(const std::exception& thrown);

// The largest sizes that ops get from a model with a KV cache of num_blocks blocks.
kernels::OpLimits op_limits(const AgentOptions& options, int num_blocks);

}  // namespace lmtp::agent
