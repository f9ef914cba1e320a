// Sizes and times as options write them.
#pragma once

#include <cstdint>
#include <string_view>

#include "lmtp/base/result.h"

namespace lmtp::tools {

// "4096", "512MiB", "1.5GiB", "4G": KiB, MiB, GiB, TiB (also K, M, G, T) are powers of 1024; kB,
// MB, GB, TB are powers of 1000. Upper and lower case count the same.
Result<std::int64_t> parse_size(std::string_view text);

// "90", "90s", "30m", "1.5h", "2d" in milliseconds; "0" and "never" are 0.
Result<std::int64_t> parse_duration_ms(std::string_view text);

}  // namespace lmtp::tools
