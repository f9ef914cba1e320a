#include "lmtp/model/kv_cache.h"

#include <ATen/ops/empty.h>

namespace lmtp::model {

std::int64_t kv_block_bytes(const ModelConfig& config) {
  const std::int64_t token = std::int64_t{config.num_kv_heads} *
                             (config.head_dim + kernels::padded_head_dim(config.head_dim));
  return std::int64_t{config.num_layers} * kBlockSize * token *
         static_cast<std::int64_t>(sizeof(float));
}

KvCache::KvCache(const ModelConfig& config, int num_blocks)
    : num_blocks_(num_blocks),
      num_layers_(config.num_layers),
      num_kv_heads_(config.num_kv_heads),
      head_dim_(config.head_dim) {
  LMTP_CHECK(num_blocks >= 2, num_blocks);
  // Large allocations come as untouched pages: a block costs memory once it is written.
  keys_ = at::empty({num_layers_, num_blocks_, num_kv_heads_, head_dim_, kBlockSize}, at::kFloat);
  values_ = at::empty(
      {num_layers_, num_blocks_, num_kv_heads_, kBlockSize, kernels::padded_head_dim(head_dim_)},
      at::kFloat);
}

std::int64_t KvCache::num_bytes() const {
  return static_cast<std::int64_t>(keys_.nbytes() + values_.nbytes());
}

kernels::KvLayer KvCache::layer(int index) const {
  LMTP_CHECK(index >= 0 && index < num_layers_, index, num_layers_);
  kernels::KvLayer layer{
      .num_blocks = num_blocks_, .num_kv_heads = num_kv_heads_, .head_dim = head_dim_};
  layer.keys = keys_.data_ptr<float>() + index * num_blocks_ * layer.key_block_size();
  layer.values = values_.data_ptr<float>() + index * num_blocks_ * layer.value_block_size();
  return layer;
}

void KvCache::copy_blocks(kernels::Stream& stream,
                          const std::vector<kernels::KvCopy>& copies) const {
  if (copies.empty()) {
    return;
  }
  for (int index = 0; index < num_layers_; ++index) {
    kernels::kv_copy(stream, layer(index), copies.data(), static_cast<std::int64_t>(copies.size()));
  }
}

}  // namespace lmtp::model
