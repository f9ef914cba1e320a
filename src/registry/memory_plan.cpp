#include "memory_plan.h"

#include <algorithm>

#include "lmtp/cache/kv_size.h"

namespace lmtp::registry {

std::int64_t kv_bytes_wanted(const MemoryNeed& need, std::optional<std::int64_t> free_bytes) {
  if (need.kv_bytes > 0) return need.kv_bytes;
  return std::max(need.kv_bytes_min,
                  default_kv_bytes(need.on_device, free_bytes, need.weights_bytes));
}

namespace {

// The size of the KV cache if so much is free; nullopt if the model does not fit. `kept_bytes` stay
// free. `squeeze`: if the default size does not fit, a smaller one will do, down to kv_bytes_min.
std::optional<std::int64_t> kv_budget(const MemoryNeed& need,
                                      std::optional<std::int64_t> free_bytes,
                                      std::int64_t kept_bytes, bool squeeze) {
  const std::int64_t wanted = kv_bytes_wanted(need, free_bytes);
  if (!free_bytes) return wanted;
  const std::int64_t left = *free_bytes - need.weights_bytes;
  if (wanted <= left - kept_bytes) return wanted;
  if (squeeze && need.kv_bytes == 0 && need.kv_bytes_min <= left) return left;
  return std::nullopt;
}

}  // namespace

MemoryDecision decide_memory(const MemoryNeed& need, const MemoryState& state) {
  std::optional<std::int64_t> free_bytes = state.free_bytes;
  std::int64_t held_bytes = 0;
  const LoadedModel* oldest = nullptr;
  for (const LoadedModel& model : state.loaded) {
    if (free_bytes) *free_bytes -= model.promised_bytes;
    held_bytes += model.held_bytes;
    if (!model.idle) continue;
    if (oldest == nullptr || model.last_used < oldest->last_used) oldest = &model;
  }
  // Nothing is unloaded for what would not fit even then.
  const std::int64_t needed = need.weights_bytes + std::max(need.kv_bytes_min, need.kv_bytes);
  if (free_bytes && needed > *free_bytes + held_bytes) {
    if (state.is_only) return LoadNow{kv_bytes_wanted(need, free_bytes)};
    return TooLarge{needed, std::max<std::int64_t>(0, *free_bytes + held_bytes)};
  }
  const bool has_seat = static_cast<int>(state.loaded.size()) < state.max_models;
  // Beside others on a device: what the first one left free is not for the KV cache of the next.
  const std::int64_t kept_bytes = need.on_device && !state.loaded.empty() ? kDeviceMarginBytes : 0;
  if (has_seat) {
    if (const auto kv_bytes = kv_budget(need, free_bytes, kept_bytes, false)) {
      return LoadNow{*kv_bytes};
    }
  }
  if (oldest != nullptr) {
    return UnloadFirst{static_cast<std::size_t>(oldest - state.loaded.data())};
  }
  if (has_seat) {
    if (const auto kv_bytes = kv_budget(need, free_bytes, 0, true)) return LoadNow{*kv_bytes};
  }
  return WaitForMemory{};
}

}  // namespace lmtp::registry
