#include "lmtp/model/kv_cache.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>

#include "kernels/device_api.h"
#include "lmtp/base/check.h"

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

KvGroups one_kv_group(const std::vector<KvSpec>& specs) {
  KvGroups groups{.layout = {}, .slots = specs, .layers = {}};
  for (int slot = 0; slot < static_cast<int>(specs.size()); ++slot) {
    groups.layers.push_back({.group = 0, .slot = slot});
  }
  return groups;
}

KvGroups kv_groups(const std::vector<KvSpec>& specs, int context_length) {
  // Layers by how far they see, the farthest first.
  std::map<int, std::vector<std::size_t>, std::greater<>> by_window;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const int window = specs[i].window > 0 ? specs[i].window : context_length;
    by_window[std::min(window, context_length)].push_back(i);
    if (specs[i].width() != specs[0].width() || specs[i].head_dim != specs[0].head_dim) {
      return one_kv_group(specs);
    }
  }
  const int farthest = by_window.begin()->first;
  const bool has_stubs = farthest < context_length;
  const std::size_t num_groups_max = KvLayout::kGroupsMax - (has_stubs ? 1 : 0);
  const std::size_t num_farthest = by_window.begin()->second.size();
  if (2 * num_farthest > specs.size() || by_window.size() > num_groups_max) {
    if (!has_stubs) return one_kv_group(specs);
    by_window = {{farthest, std::vector<std::size_t>(specs.size())}};
    std::iota(by_window.begin()->second.begin(), by_window.begin()->second.end(), 0);
  }
  // The fewest slots with which there are not too many groups.
  const auto count_groups = [&](std::size_t num_slots) {
    std::size_t count = 0;
    for (const auto& [window, layers] : by_window) {
      count += (layers.size() + num_slots - 1) / num_slots;
    }
    return count;
  };
  std::size_t num_slots = by_window.begin()->second.size();
  while (count_groups(num_slots) > num_groups_max) ++num_slots;
  KvGroups groups;
  groups.slots.assign(num_slots, specs[0]);
  groups.layers.resize(specs.size());
  groups.layout.has_stubs = has_stubs;
  groups.layout.num_groups = groups.layout.first_group();
  for (const auto& [window, layers] : by_window) {
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const std::size_t slot = i % num_slots;
      if (slot == 0) {
        const int group = groups.layout.num_groups++;
        groups.layout.windows[static_cast<std::size_t>(group)] = group == 0 ? 0 : window;
      }
      groups.layers[layers[i]] = {.group = groups.layout.num_groups - 1,
                                  .slot = static_cast<int>(slot)};
    }
  }
  return groups;
}

std::int64_t kv_block_bytes(const std::vector<KvSpec>& slots, kernels::ElementType type) {
  std::int64_t num_bytes = 0;
  for (const KvSpec& spec : slots) num_bytes += 2 * keys_bytes(make_layer(spec, 1, type));
  return num_bytes;
}

std::int64_t kv_piece_bytes(const std::vector<KvSpec>& slots, kernels::ElementType type) {
  std::int64_t num_bytes = keys_bytes(make_layer(slots.at(0), 1, type));
  for (const KvSpec& spec : slots) {
    num_bytes = std::min(num_bytes, keys_bytes(make_layer(spec, 1, type)));
  }
  return num_bytes;
}

KvCache::KvCache(const KvGroups& groups, int num_blocks, kernels::Stream& stream,
                 kernels::ElementType type, int num_host_blocks)
    : num_groups_(groups.layout.num_groups),
      num_blocks_(num_blocks),
      num_host_blocks_(num_host_blocks),
      piece_bytes_(kv_piece_bytes(groups.slots, type)),
      places_(groups.layers) {
  const std::vector<KvSpec>& specs = groups.slots;
  LMTP_CHECK(num_blocks >= 2, num_blocks);
  // On the host a large allocation is untouched pages: a block uses memory once it is written.
  const auto num_bytes = static_cast<std::size_t>(num_blocks * kv_block_bytes(specs, type));
  memory_ = kernels::Memory::allocate(stream.backend(), num_bytes);
  if (const kernels::DeviceApi* device = stream.device_api(); device != nullptr) {
    // Kernels read whole blocks and mask the rows without a token: these must not be NaN.
    device->set_zero(stream.handle(), memory_.data(), num_bytes);
  }
  slots_ = make_layers(specs, num_blocks, type, memory_);
  if (num_host_blocks == 0) return;
  host_memory_ = kernels::Memory::allocate_pinned(
      stream.backend(), static_cast<std::size_t>(num_host_blocks * kv_block_bytes(specs, type)));
  host_slots_ = make_layers(specs, num_host_blocks, type, host_memory_);
}

const KvGroups::Place& KvCache::place(int layer) const {
  LMTP_CHECK(layer >= 0 && layer < static_cast<int>(places_.size()), layer, places_.size());
  return places_[static_cast<std::size_t>(layer)];
}

void KvCache::append_pieces(BlockId block, std::vector<void*>& to) const {
  LMTP_CHECK(block > kNullBlock && block < num_blocks_, block, num_blocks_);
  for (const kernels::KvLayer& layer : slots_) {
    const std::int64_t offset = block * layer.block_size() * kernels::element_size(layer.type);
    to.push_back(static_cast<std::byte*>(layer.keys) + offset);
    to.push_back(static_cast<std::byte*>(layer.values) + offset);
  }
}

void KvCache::copy_blocks(kernels::Stream& stream, const kernels::KvCopy* copies,
                          std::int64_t count) const {
  if (count == 0) return;
  kernels::KvCopies all{.copies = copies, .count = count, .num_host_blocks = num_host_blocks_};
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (num_host_blocks_ > 0) {
      all.host_keys = host_slots_[i].keys;
      all.host_values = host_slots_[i].values;
    }
    kernels::kv_copy(stream, slots_[i], all);
  }
}

}  // namespace lmtp::model
