// The report as text: a line with the server, a block of text for each point, and for a sweep a
// table with a line for each point.
#pragma once

#include <string>
#include <vector>

#include "bench_options.h"
#include "sweep.h"

namespace lmtp::tools {

// All end with a line end.
std::string header_text(const BenchOptions& options);
std::string point_text(const BenchOptions& options, const SweepResult& result);
std::string sweep_text(const std::vector<SweepResult>& results);

}  // namespace lmtp::tools
