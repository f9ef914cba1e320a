// The latency metrics of a load, with their names in reports.
#pragma once

#include <cstdint>
#include <string>

#include "load_stats.h"

namespace lmtp::tools {

enum class Metric { kTtft, kTpot, kItl, kE2el };

// A metric's name in texts ("TTFT") and in JSON ("ttft"), and its times.
const char* metric_title(Metric metric);
const char* metric_key(Metric metric);
const TimeHistogram& times_of(const LoadStats& stats, Metric metric);

// "p50", "p99.9".
std::string percentile_name(double percentile);

double per_second(std::int64_t count, const LoadStats& stats);

}  // namespace lmtp::tools
