// Checks which options of lmtp-bench can be combined, and that each has an effect.
#pragma once

#include <functional>
#include <string>

#include "bench_options.h"

namespace lmtp::tools {

// Whether an option was given on the command line; `name` is the first of its long names.
using IsGiven = std::function<bool(const std::string& name)>;

// Empty if the options can be combined and each has an effect; else the error with the remedy.
std::string wrong_options(const BenchOptions& options, const IsGiven& is_given);

}  // namespace lmtp::tools
