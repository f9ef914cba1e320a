#include "lmtp/agent/cpu_memory.h"

#include <algorithm>

#include "free_memory.h"
#include "lmtp/model/causal_lm.h"
#include "lmtp/model/kv_cache.h"

namespace lmtp::agent {
namespace {

// Beside the weights: what is computed in, samplers, buffers of the loading, rounding.
constexpr std::int64_t kFixedBytes = std::int64_t{48} << 20;
constexpr std::int64_t kWeightsShare = 16;  // one part in so many of the weights

}  // namespace

Result<CpuMemory> estimate_cpu_memory(const CpuAgentOptions& options) {
  const auto tensors = model::describe_tensors(options.config);
  if (!tensors) return tensors.error();
  CpuMemory memory;
  for (const model::TensorSpec& tensor : *tensors) memory.num_parameters += tensor.num_elements();
  const std::int64_t weights =
      memory.num_parameters * weight_bytes(options.weight_type);  // whatever the file has
  // A step's results: the residual, queries, keys and values, the MLP twice.
  const std::int64_t floats_per_token =
      std::int64_t{8} * options.config.hidden_size + std::int64_t{2} * options.config.mlp_size;
  const std::int64_t workspace =
      floats_per_token * options.max_batched_tokens * static_cast<std::int64_t>(sizeof(float));
  memory.weights_bytes = weights + weights / kWeightsShare + workspace + kFixedBytes;
  const int context =
      options.context_length > 0 ? options.context_length : options.config.context_length;
  const std::int64_t blocks_of_a_stream = (context + kBlockSize - 1) / kBlockSize + 1;
  memory.kv_bytes_min = blocks_of_a_stream * model::kv_block_bytes(options.config);
  return memory;
}

int servable_context(const CpuAgentOptions& options) {
  const std::int64_t bytes =
      options.kv_cache_bytes > 0 ? options.kv_cache_bytes : default_kv_cache_bytes();
  // Block 0 is never handed out.
  const std::int64_t num_blocks = bytes / model::kv_block_bytes(options.config) - 1;
  const std::int64_t fits = std::max<std::int64_t>(num_blocks * kBlockSize, kContextLengthMin);
  return static_cast<int>(std::min<std::int64_t>(fits, options.config.context_length));
}

std::optional<std::int64_t> available_memory_bytes() { return free_memory_bytes(); }

}  // namespace lmtp::agent
