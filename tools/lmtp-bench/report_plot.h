// A plot of a sweep: throughput, time to first token and inter-token latency over the swept option.
#pragma once

#include <string>
#include <vector>

#include "sweep.h"

namespace lmtp::tools {

// The x axis is the request rate if the points have one, else the concurrency; with both, there is
// a line for each concurrency. REQUIRES: at least one result.
std::string sweep_svg(const std::string& heading, const std::vector<SweepResult>& results);

}  // namespace lmtp::tools
