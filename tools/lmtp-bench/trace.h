// A recorded trace: arrival times and lengths of requests, and which blocks of their prompts were
// equal; no text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lmtp/base/result.h"

namespace lmtp::tools {

inline constexpr std::size_t kTraceRowsMax = 10'000'000;
inline constexpr int kTraceTokensMax = 1 << 24;  // of a prompt, and of an output
inline constexpr int kTraceBlockTokens = 512;    // of each of prefix_blocks

struct TraceRow {
  double arrival_s = 0.0;
  int prompt_tokens = 0;                    // >= 1
  int output_tokens = 0;                    // >= 1
  std::vector<std::int32_t> prefix_blocks;  // ids of the prompt's blocks: equal ids, equal tokens
};

// Reads CSV with a header line. Columns, in any order: arrival_s (seconds, ascending),
// prompt_tokens, output_tokens, and optionally prefix_blocks (numbers separated by spaces); others
// are ignored. The error names file and line.
Result<std::vector<TraceRow>> read_trace(const std::string& path);

}  // namespace lmtp::tools
