// The options of `lmtp-serve balance`.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>

#include "raw_options.h"

namespace lmtp::tools {

// Makes the options of lmtp-serve those of its balancer. REQUIRES: `app` has the former. `raw`
// outlives `app`.
void add_balance_options(CLI::App& app, RawOptions& raw);

// Whether lmtp-serve's balancer has it too. REQUIRES: it is lmtp-serve's.
bool is_for_balancer(const CLI::Option& option);

// Without --max-concurrent-requests its default is for each of so many workers.
void limit_requests(const CLI::App& app, std::size_t num_workers, ServeOptions& options);

// Throws CLI11's errors.
void finish_balance_options(const CLI::App& app, const RawOptions& raw, ServeOptions& options);

}  // namespace lmtp::tools
