#include "load_model.h"

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "lmtp/model/kv_cache.h"

namespace lmtp::agent {

Result<std::int64_t> count_weights(const model::ModelConfig& config) {
  const auto tensors = model::describe_tensors(config);
  if (!tensors.ok()) {
    return tensors.error();
  }
  std::int64_t num_elements = 0;
  for (const model::TensorSpec& tensor : *tensors) {
    num_elements += tensor.num_elements();
  }
  return num_elements;
}

Result<std::unique_ptr<model::CausalLM>> load_model(
    const hub::ModelSource& source, const model::ModelConfig& config, kernels::WorkerPool& pool,
    model::WeightStore& store, int max_batched_tokens, const LoadProgress& progress) {
  const auto num_elements = count_weights(config);
  if (!num_elements.ok()) {
    return num_elements.error();
  }
  std::unique_ptr<model::TensorSource> tensors;
  if (source.kind == hub::SourceKind::kRandom) {
    tensors = model::make_random_source(source.seed, config.weight_type, pool);
  } else {
    auto checkpoint = model::open_checkpoint(source.folder);
    if (!checkpoint.ok()) {
      return checkpoint.error();
    }
    tensors = std::move(*checkpoint);
  }
  model::WeightLoader loader(*tensors, store, *num_elements, progress);
  return model::make_causal_lm(config, loader, max_batched_tokens);
}

Result<int> count_blocks(const model::ModelConfig& config, kernels::ElementType type,
                         std::int64_t kv_cache_bytes, int context_length) {
  const std::int64_t block_bytes = model::kv_block_bytes(config, type);
  const std::int64_t num_blocks =
      std::min<std::int64_t>(kv_cache_bytes / block_bytes, INT32_MAX / kBlockSize);
  const int context = context_length > 0 ? context_length : config.context_length;
  // One stream of full length, and block 0, which is never handed out.
  const std::int64_t needed = (context + kBlockSize - 1) / kBlockSize + 1;
  if (num_blocks < needed) {
    return Error{"a KV cache of " + std::to_string(kv_cache_bytes) +
                 " bytes does not hold one stream of " + std::to_string(context) +
                 " tokens; give --kv-cache at least " + std::to_string(needed * block_bytes)};
  }
  return static_cast<int>(num_blocks);
}

std::string gibibytes(std::int64_t num_bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f GiB", static_cast<double>(num_bytes) / (1 << 30));
  return text;
}

}  // namespace lmtp::agent
