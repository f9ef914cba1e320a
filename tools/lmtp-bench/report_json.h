// What a program reads: the whole sweep as one JSON object. Summaries carry the names that vLLM's
// benchmark gives them (completed, request_throughput, mean_ttft_ms, p99_itl_ms, ...).
#pragma once

#include <string>
#include <vector>

#include "bench_options.h"
#include "server_info.h"
#include "sweep.h"

namespace lmtp::tools {

// What was left to defaults or to the server stands among the options as it was chosen.
// `date` is when the sweep began, in ISO 8601. REQUIRES: results are not empty.
std::string report_json(const BenchOptions& options, const ServerInfo& server,
                        const std::string& date, const std::vector<SweepResult>& results);

}  // namespace lmtp::tools
