// The size of a KV cache if --kv-cache is not given.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace lmtp {

// On a CPU, where memory is taken as it is used: the smaller of this and a quarter of what is free.
inline constexpr std::int64_t kDefaultKvBytesMax = std::int64_t{4} << 30;
// On a device, where it is taken at once: all that is free beside `other_bytes`, less this margin
// (or an eighth, if that is less) for kernel code, scratch memory and other processes.
inline constexpr std::int64_t kDeviceMarginBytes = std::int64_t{1} << 30;

// free_bytes: nullopt if the system does not say.
inline std::int64_t default_kv_bytes(bool on_device, std::optional<std::int64_t> free_bytes,
                                     std::int64_t other_bytes) {
  if (!free_bytes) return kDefaultKvBytesMax;
  if (!on_device) return std::min(kDefaultKvBytesMax, *free_bytes / 4);
  const std::int64_t left = *free_bytes - other_bytes;
  return std::max<std::int64_t>(0, left - std::min(kDeviceMarginBytes, left / 8));
}

}  // namespace lmtp
