// Runs a load against a server: a number of connections, a thread each.
#pragma once

#include "lmtp/base/result.h"
#include "lmtp/client/interrupts.h"
#include "load_options.h"
#include "load_stats.h"

namespace lmtp::tools {

// Runs one load to its end; a SIGINT ends it early, with the results so far. An error if a
// connection cannot be made; later errors are counted. `interrupts` may be null.
Result<LoadStats> run_load(const LoadOptions& options, client::Interrupts* interrupts);

}  // namespace lmtp::tools
