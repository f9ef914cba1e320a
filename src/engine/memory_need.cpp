#include <algorithm>

#include "lmtp/engine/model_factory.h"

namespace lmtp::engine {

std::optional<std::int64_t> kv_budget(const MemoryNeed& need, std::int64_t free_bytes,
                                      bool squeeze) {
  const std::int64_t by_default =
      std::max(need.kv_bytes_min, std::min(kDefaultKvBytesMax, free_bytes / 4));
  const std::int64_t wanted = need.kv_bytes > 0 ? need.kv_bytes : by_default;
  const std::int64_t left = free_bytes - need.weights_bytes;
  if (wanted <= left) return wanted;
  if (squeeze && need.kv_bytes == 0 && need.kv_bytes_min <= left) return left;
  return std::nullopt;
}

}  // namespace lmtp::engine
