// A sweep: the loads that a command line stands for, one after the other.
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
  std::string note;                // what was left out of a trace; empty: nothing
};

// Tokens of the longest request of a trace that is sent; 0: of any length.
int trace_length_max(const BenchOptions& options, const ServerInfo& server);

// Requests in front of a sweep that begins with the point `first`.
std::int64_t num_warmups(const BenchOptions& options, const LoadOptions& first);

// Each point has a seed of its own, so that none finds its prompts in the server's cache. Reads the
// trace. The error says which option would help.
Result<Sweep> plan_sweep(const BenchOptions& options, const ServerInfo& server);

// "concurrency 8", "4/s", "4/s, concurrency 8 at most", "all at once", "trace times".
std::string describe(const SweepPoint& point);

// A point with what came of it.
struct SweepResult {
  SweepPoint point;
  LoadStats stats;
};

}  // namespace lmtp::tools
