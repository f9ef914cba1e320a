// A sweep: the sequence of loads that a command line asks for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench_options.h"
#include "lmtp/base/result.h"
#include "load_options.h"
#include "load_stats.h"
#include "server_info.h"

namespace lmtp::tools {

struct SweepPoint {
  std::optional<int> max_concurrency;  // none: no limit but kConcurrencyMax
  std::optional<double> request_rate;  // none: closed loop, or a trace's own times
  LoadOptions load;
};

struct Sweep {
  std::optional<LoadOptions> warmup;
  std::vector<SweepPoint> points;  // at least one
  std::string note;                // about rows of a trace that are skipped; empty: none
};

// The longest request of a trace that is sent, in tokens; 0: any.
int trace_length_max(const BenchOptions& options, const ServerInfo& server);

// The number of warm-up requests of a sweep that begins with the point `first`.
std::int64_t num_warmups(const BenchOptions& options, const LoadOptions& first);

// Each point has its own seed, so that none finds its prompts in the server's cache. Reads the
// trace. The error names the option that would help.
Result<Sweep> plan_sweep(const BenchOptions& options, const ServerInfo& server);

// "concurrency 8", "4/s", "4/s, concurrency 8 at most", "all at once", "trace times".
std::string describe(const SweepPoint& point);

// A point and its result.
struct SweepResult {
  SweepPoint point;
  LoadStats stats;
};

}  // namespace lmtp::tools
