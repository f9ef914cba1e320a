#include "linear_shape.h"

#include <unistd.h>

namespace lmtp::kernels {

std::size_t second_cache_bytes() {
  const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
}

LinearShape linear_shape_for(int num_registers, std::size_t second_cache_bytes) {
  constexpr std::size_t kLargeCache = std::size_t{2} << 20;
  if (num_registers < 32) {
    // Wider than three rows a tile is half a panel, and each line of weights is read twice.
    return {.narrow_rows = 3, .block_panels = 4, .block_units = 128};
  }
  if (second_cache_bytes < kLargeCache) {
    return {.narrow_rows = 12, .block_panels = 2, .block_units = 512};
  }
  return {.narrow_rows = 6, .block_panels = 4, .block_units = 128};
}

}  // namespace lmtp::kernels
