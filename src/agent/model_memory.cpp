#include "lmtp/agent/model_memory.h"

#include <algorithm>
#include <limits>

#include "free_memory.h"
#include "kernels/device.h"
#include "kernels/device_api.h"
#include "load_model.h"
#include "resident_batch.h"
#include "step_graphs.h"
#include "step_sampling.h"

namespace lmtp::agent {
namespace {

// Beside the weights: small buffers, samplers, buffers of the loading, rounding.
constexpr std::int64_t kFixedBytes = std::int64_t{48} << 20;
constexpr std::int64_t kWeightsShare = 16;  // and 1/16 of the weights
// Of a graph: at most 16 launches a layer, each with its arguments and the driver's data. Not
// measured yet; if it is too little, steps run without graphs.
constexpr std::int64_t kGraphLayerBytes = 16 * 4096;
// What default_kv_bytes leaves free, for all devices once.
constexpr std::int64_t kDeviceMarginBytes = std::int64_t{1} << 30;
constexpr auto kFloat = static_cast<std::int64_t>(sizeof(float));

// Memory of a device's agent beside weights, a step's results and the KV cache.
std::int64_t device_workspace_bytes(const AgentOptions& options) {
  const int rows = options.batch.rows_max();
  // The model's context: options.context_length is not set yet.
  return static_cast<std::int64_t>(logits_bytes(options)) +
         ResidentBatch::num_bytes(rows, options.config.context_length,
                                  kv_groups(options).layout.num_groups) +
         StepSampling::num_bytes(options.config.vocab_size, options.batch,
                                 logit_rows_max(options)) +
         (may_have_codes(options) ? kernels::cuda::kWidenedBytesMax : 0) +
         kernels::cuda::kPartialBytesMax +
         std::int64_t{options.num_ranks == 1 ? kGraphsMax : 0} * options.config.num_layers *
             kGraphLayerBytes;
}

// At most, of what sequences have passed where no layer sees all (KvLayout::num_stubs); beside the
// blocks themselves those of them are little.
std::int64_t stub_bytes(const AgentOptions& options) {
  constexpr std::int64_t kStubBytes = 270;  // nodes, lists and maps of the cache
  if (!kv_groups(options).layout.has_stubs) return 0;
  const std::int64_t of_each = (longest_stream(options) + kBlockSize - 1) / kBlockSize;
  return of_each * options.batch.rows_max() * kStubBytes;
}

}  // namespace

Result<ModelMemory> estimate_memory(const AgentOptions& options) {
  const auto num_weights = count_weights(options);
  if (!num_weights) return num_weights.error();
  ModelMemory memory;
  memory.num_parameters = *num_weights;
  const std::int64_t weights = count_weight_bytes(options);
  // A step's results: the residual, queries, keys and values, the MLP twice.
  const std::int64_t floats_per_token =
      std::int64_t{8} * options.config.hidden_size + std::int64_t{2} * options.config.mlp_size +
      options.config.experts.floats_per_token(options.config.hidden_size);
  const std::int64_t workspace = floats_per_token * options.batch.max_tokens * kFloat +
                                 (options.cuda_device ? device_workspace_bytes(options) : 0);
  memory.weights_bytes =
      options.num_ranks * (weights + weights / kWeightsShare + workspace + kFixedBytes);
  if (options.cuda_device) memory.weights_bytes += (options.num_ranks - 1) * kDeviceMarginBytes;
  memory.weights_bytes += stub_bytes(options);
  memory.kv_bytes_min = num_blocks_min(options) * kv_block_bytes(options);
  return memory;
}

int servable_context(const AgentOptions& options) {
  // Block 0 is never handed out.
  const std::int64_t num_blocks = options.kv_cache_bytes / kv_block_bytes(options) - 1;
  const KvLayout layout = kv_groups(options).layout;
  // The longest stream that they hold, to a block.
  int num_tokens = 0;
  for (int more = model::kContextLengthMax; more >= kBlockSize; more /= 2) {
    if (layout.num_held_max(num_tokens + more) <= num_blocks) num_tokens += more;
  }
  const int fits = std::max(num_tokens, kContextLengthMin);
  return std::min(fits, options.config.context_length);
}

std::optional<std::int64_t> available_memory_bytes(std::optional<int> cuda_device,
                                                   int num_devices) {
  if (!cuda_device) return free_memory_bytes();
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (int number = *cuda_device; number < *cuda_device + num_devices; ++number) {
    if (!kernels::cuda::probe(number).available) return std::nullopt;
    const kernels::DeviceApi& device = *kernels::cuda::backend().device;
    try {
      device.use_device(number);
      least = std::min(least, device.memory().free_bytes);
    } catch (const kernels::DeviceError&) {
      return std::nullopt;
    }
  }
  return least * num_devices;
}

}  // namespace lmtp::agent
