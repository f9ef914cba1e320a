// The report for programs: the whole sweep as one JSON object. Names of results are those of vLLM's
// benchmark (completed, request_throughput, mean_ttft_ms, p99_itl_ms, ...).
#pragma once

#include <string>
#include <vector>

#include "bench_options.h"
#include "server_info.h"
#include "sweep.h"

namespace lmtp::tools {

// The options include the values chosen by defaults or from the server's answer.
// `date` is when the sweep began, in ISO 8601. REQUIRES: results are not empty.
std::string report_json(const BenchOptions& options, const ServerInfo& server,
                        const std::string& date, const std::vector<SweepResult>& results);

}  // namespace lmtp::tools
