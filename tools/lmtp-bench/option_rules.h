// Which options of lmtp-bench go together, and which have an effect where.
#pragma once

#include <functional>
#include <string>

#include "bench_options.h"

namespace lmtp::tools {

// Whether an option stood on the command line; `name` is the first of its long names.
using IsGiven = std::function<bool(const std::string& name)>;

// Empty where the options go together and each that was given has an effect; else what does not,
// and what to do.
std::string wrong_options(const BenchOptions& options, const IsGiven& is_given);

}  // namespace lmtp::tools
