// Puts a load on a server: as many connections as asked for, a thread each.
#pragma once

#include "lmtp/base/result.h"
#include "lmtp/client/interrupts.h"
#include "load_options.h"
#include "load_stats.h"

namespace lmtp::tools {

// Runs one load to its end; a SIGINT ends it early, with what has come until then. An error where a
// connection cannot be made; what goes wrong later is counted. `interrupts` may be null.
Result<LoadStats> run_load(const LoadOptions& options, client::Interrupts* interrupts);

}  // namespace lmtp::tools
