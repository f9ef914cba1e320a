#include "lmtp/model/kv_cache.h"

#include "kernels/device_api.h"

namespace lmtp::model {
namespace {

// Keys and values of one block and layer.
std::int64_t layer_block_bytes(const ModelConfig& config, kernels::ElementType type) {
  const kernels::KvLayer layer{.num_kv_heads = config.num_kv_heads, .head_dim = config.head_dim};
  return 2 * layer.block_size() * kernels::element_size(type);
}

}  // namespace

std::int64_t kv_block_bytes(const ModelConfig& config, kernels::ElementType type) {
  return config.num_layers * layer_block_bytes(config, type);
}

KvCache::KvCache(const ModelConfig& config, int num_blocks, kernels::Stream& stream,
                 kernels::ElementType type)
    : num_blocks_(num_blocks),
      num_layers_(config.num_layers),
      num_kv_heads_(config.num_kv_heads),
      head_dim_(config.head_dim),
      type_(type) {
  LMTP_CHECK(num_blocks >= 2, num_blocks);
  // On the host a large allocation is untouched pages: a block uses memory once it is written.
  const auto num_bytes = static_cast<std::size_t>(num_blocks * kv_block_bytes(config, type));
  memory_ = kernels::Memory::allocate(stream.backend(), num_bytes);
  if (const kernels::DeviceApi* device = stream.device_api(); device != nullptr) {
    // Kernels read whole blocks and mask the rows without a token: these must not be NaN.
    device->set_zero(stream.handle(), memory_.data(), num_bytes);
  }
}

kernels::KvLayer KvCache::layer(int index) const {
  LMTP_CHECK(index >= 0 && index < num_layers_, index, num_layers_);
  kernels::KvLayer layer{.num_blocks = num_blocks_,
                         .num_kv_heads = num_kv_heads_,
                         .head_dim = head_dim_,
                         .type = type_};
  const std::int64_t half =
      num_blocks_ * layer.block_size() * kernels::element_size(type_);  // bytes
  auto* keys = static_cast<std::byte*>(memory_.data()) + 2 * index * half;
  layer.keys = keys;
  layer.values = keys + half;
  return layer;
}

void KvCache::copy_blocks(kernels::Stream& stream, const kernels::KvCopy* copies,
                          std::int64_t count) const {
  for (int index = 0; count > 0 && index < num_layers_; ++index) {
    kernels::kv_copy(stream, layer(index), copies, count);
  }
}

}  // namespace lmtp::model
