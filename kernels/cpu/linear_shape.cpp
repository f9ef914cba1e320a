#include "linear_shape.h"

#include <unistd.h>

namespace lmtp::kernels {

std::size_t l2_cache_bytes() {
  const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
}

// A pass over one panel (7 rows and more, whose sums fill the registers) reads memory as one
// stream, blocks as several. Measured:
//   Xeon with AMX, 2 MiB: weights of 8 rows of f32 at 21 GB/s in one pass, 33 in blocks.
//   Zen 5, 1 MiB: 8 rows at 21-24 GB/s in blocks of 4 x 128, where 1 and 2 rows have 46-69; one
//   pass
//     took a step of gpt2-medium with 8 streams from 63 to 34 ms in f32, from 31 to 19 in bf16;
//     blocks of 2 x 512 took 32 rows from 283 to 420-450 GFLOP/s.
//   Zen 4, 1 MiB: blocks of 1 x 512 where 2 x 512 had 169 and 194 (16 rows of f32, in the machine's
//     two modes): 177 and 204 GFLOP/s; 32 rows 180 and 205: 185 and 213; 32 of bf16 327 and 401:
//     336 and 416; 256 rows alike. 4 x 128, 4 x 256 and 2 x 1024 have less at 16 rows.
//   Xeon, 16 registers: 6 rows at 15 GB/s in one pass, 34 in blocks.
LinearShape linear_shape_for(int num_registers, std::size_t l2_cache_bytes) {
  constexpr std::size_t kLargeCache = std::size_t{2} << 20;
  if (num_registers < 32) {
    // A tile of more than three rows is half a panel wide, so each line of weights would be read
    // twice.
    return {.gemv_rows_max = 3, .block_panels = 4, .block_units = 128};
  }
  if (l2_cache_bytes < kLargeCache) {
    return {.gemv_rows_max = 12, .block_panels = 1, .block_units = 512};
  }
  return {.gemv_rows_max = 6, .block_panels = 4, .block_units = 128};
}

}  // namespace lmtp::kernels
