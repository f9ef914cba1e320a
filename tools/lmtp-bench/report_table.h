// What a person reads: one line in front, a block of text for each point, and for a sweep one line
// a point.
#pragma once

#include <string>
#include <vector>

#include "bench_options.h"
#include "sweep.h"

namespace lmtp::tools {

// Lines, each with its line end.
std::string header_text(const BenchOptions& options);
std::string point_text(const BenchOptions& options, const SweepResult& result);
std::string sweep_text(const std::vector<SweepResult>& results);

}  // namespace lmtp::tools
