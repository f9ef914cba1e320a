#include "lmtp/model/kv_cache.h"

#include <cstddef>

#include "kernels/device_api.h"

namespace lmtp::model {
namespace {

// Without its memory.
kernels::KvLayer make_layer(const KvSpec& spec, int num_blocks, kernels::ElementType type) {
  return {.num_blocks = num_blocks,
          .num_kv_heads = spec.num_heads,
          .head_dim = spec.head_dim,
          .type = type};
}

// Bytes of all keys of a layer; its values have as many.
std::int64_t keys_bytes(const kernels::KvLayer& layer) {
  return layer.num_blocks * layer.block_size() * kernels::element_size(layer.type);
}

std::vector<kernels::KvLayer> make_layers(const std::vector<KvSpec>& specs, int num_blocks,
                                          kernels::ElementType type,
                                          const kernels::Memory& memory) {
  std::vector<kernels::KvLayer> layers;
  auto* next = static_cast<std::byte*>(memory.data());
  for (const KvSpec& spec : specs) {
    kernels::KvLayer& layer = layers.emplace_back(make_layer(spec, num_blocks, type));
    layer.keys = next;
    layer.values = next + keys_bytes(layer);
    next += 2 * keys_bytes(layer);
  }
  return layers;
}

}  // namespace

std::vector<KvSpec> kv_specs(const ModelConfig& config) {
  std::vector<KvSpec> specs(static_cast<std::size_t>(config.num_layers),
                            {.num_heads = config.num_kv_heads, .head_dim = config.head_dim});
  LMTP_CHECK(config.layers.size() >= specs.size(), config.layers.size(), specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) specs[i].window = config.layers[i].window;
  return specs;
}

std::int64_t kv_block_bytes(const std::vector<KvSpec>& specs, kernels::ElementType type) {
  std::int64_t num_bytes = 0;
  for (const KvSpec& spec : specs) num_bytes += 2 * keys_bytes(make_layer(spec, 1, type));
  return num_bytes;
}

KvCache::KvCache(const std::vector<KvSpec>& specs, int num_blocks, kernels::Stream& stream,
                 kernels::ElementType type, int num_host_blocks)
    : num_blocks_(num_blocks), num_host_blocks_(num_host_blocks) {
  LMTP_CHECK(num_blocks >= 2, num_blocks);
  // On the host a large allocation is untouched pages: a block uses memory once it is written.
  const auto num_bytes = static_cast<std::size_t>(num_blocks * kv_block_bytes(specs, type));
  memory_ = kernels::Memory::allocate(stream.backend(), num_bytes);
  if (const kernels::DeviceApi* device = stream.device_api(); device != nullptr) {
    // Kernels read whole blocks and mask the rows without a token: these must not be NaN.
    device->set_zero(stream.handle(), memory_.data(), num_bytes);
  }
  layers_ = make_layers(specs, num_blocks, type, memory_);
  if (num_host_blocks == 0) return;
  host_memory_ = kernels::Memory::allocate_pinned(
      stream.backend(), static_cast<std::size_t>(num_host_blocks * kv_block_bytes(specs, type)));
  host_layers_ = make_layers(specs, num_host_blocks, type, host_memory_);
}

const kernels::KvLayer& KvCache::layer(int index) const {
  LMTP_CHECK(index >= 0 && index < static_cast<int>(layers_.size()), index, layers_.size());
  return layers_[static_cast<std::size_t>(index)];
}

std::int64_t KvCache::piece_bytes() const {
  const std::int64_t size = layers_.front().block_size();
  for (const kernels::KvLayer& layer : layers_) {
    if (layer.block_size() != size) return 0;
  }
  return size * kernels::element_size(layers_.front().type);
}

void KvCache::append_pieces(BlockId block, std::vector<void*>& to) const {
  LMTP_CHECK(block > kNullBlock && block < num_blocks_, block, num_blocks_);
  for (const kernels::KvLayer& layer : layers_) {
    const std::int64_t offset = block * layer.block_size() * kernels::element_size(layer.type);
    to.push_back(static_cast<std::byte*>(layer.keys) + offset);
    to.push_back(static_cast<std::byte*>(layer.values) + offset);
  }
}

void KvCache::copy_blocks(kernels::Stream& stream, const kernels::KvCopy* copies,
                          std::int64_t count) const {
  if (count == 0) return;
  kernels::KvCopies all{.copies = copies, .count = count, .num_host_blocks = num_host_blocks_};
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (num_host_blocks_ > 0) {
      all.host_keys = host_layers_[i].keys;
      all.host_values = host_layers_[i].values;
    }
    kernels::kv_copy(stream, layers_[i], all);
  }
}

}  // namespace lmtp::model
