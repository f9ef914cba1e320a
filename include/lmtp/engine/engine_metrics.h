// What an engine counts of its requests and steps; how each number is called and shown stands in
// metric_table.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lmtp/base/metrics.h"
#include "lmtp/base/result.h"
#include "lmtp/request/event.h"

namespace lmtp::engine {

// Of durations in nanoseconds, shown in seconds.
inline constexpr Buckets kTimeBuckets(
    1e-9, {100'000,         250'000,          500'000,        1'000'000,       2'500'000,
           5'000'000,       10'000'000,       25'000'000,     50'000'000,      100'000'000,
           250'000'000,     500'000'000,      1'000'000'000,  2'500'000'000,   5'000'000'000,
           10'000'000'000,  25'000'000'000,   50'000'000'000, 100'000'000'000, 250'000'000'000,
           500'000'000'000, 1'000'000'000'000});
static_assert(kTimeBuckets.is_valid());
// Of tokens and of streams.
inline constexpr Buckets kSizeBuckets(1.0, {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096,
                                            8192, 16384, 32768, 65536, 131072});
static_assert(kSizeBuckets.is_valid());

// How requests end, by FinishReason.
inline constexpr std::array<std::string_view, 3> kFinishNames = {"", "stop", "length"};
static_assert(kFinishNames.size() == static_cast<std::size_t>(FinishReason::kLength) + 1);

inline constexpr std::size_t kNumErrorCodes = static_cast<std::size_t>(ErrorCode::kInternal) + 1;

// Owner: the Engine, whose thread alone adds. A copy is a snapshot; any thread may make one.
struct EngineMetrics {
  // Requests by how they ended. Each that the engine was given is in one of them, once.
  std::array<Tally<std::uint64_t>, kFinishNames.size()> num_finished;  // by FinishReason
  std::array<Tally<std::uint64_t>, kNumErrorCodes> num_failed;         // by ErrorCode

  // Of requests, from their arrival on: until they were first scheduled, until their first token,
  // and of those that finished, until their last one.
  Histogram queue_time{kTimeBuckets};
  Histogram time_to_first_token{kTimeBuckets};
  Histogram inter_token_latency{kTimeBuckets};  // between two tokens of a Generate
  Histogram request_latency{kTimeBuckets};
  // From being scheduled until the last token; and of Generates, that for each token.
  Histogram inference_time{kTimeBuckets};
  Histogram time_per_token{kTimeBuckets};
  Histogram request_prompt_tokens{kSizeBuckets};     // of those that finished
  Histogram request_generated_tokens{kSizeBuckets};  // of Generates that finished

  Histogram step_tokens{kSizeBuckets};
  Histogram step_streams{kSizeBuckets};
};

}  // namespace lmtp::engine
