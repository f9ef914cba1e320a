// A sweep as a picture: throughput, time to first token and inter-token latency over what is swept.
#pragma once

#include <string>
#include <vector>

#include "sweep.h"

namespace lmtp::tools {

// The x axis is the request rate where the points have some, else the concurrency; with both, each
// concurrency is a line of its own. REQUIRES: at least one result.
std::string sweep_svg(const std::string& heading, const std::vector<SweepResult>& results);

}  // namespace lmtp::tools
