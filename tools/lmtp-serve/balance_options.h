// The options of `lmtp-serve balance`.
#pragma once

#include <CLI/CLI.hpp>

#include "raw_options.h"

namespace lmtp::tools {

// Makes the options of lmtp-serve those of its balancer. REQUIRES: `app` has the former. `raw`
// outlives `app`.
void add_balance_options(CLI::App& app, RawOptions& raw);

// Throws CLI11's errors.
void finish_balance_options(const CLI::App& app, const RawOptions& raw, ServeOptions& options);

}  // namespace lmtp::tools
