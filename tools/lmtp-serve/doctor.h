// lmtp-serve doctor: looks at all that could keep the server from serving with these options.
#pragma once

#include "serve_options.h"

namespace lmtp::tools {

// Prints a line for each thing that was looked at, "ok: ...", "warning: ..." or "error: ..." with
// what to do (objects where --log-format is json). Opens the sockets and loads the model for a
// moment; downloads nothing. Returns the exit code: 1 where there is an error. REQUIRES: main's
// thread, no other is running.
int diagnose(const ServeOptions& options);

}  // namespace lmtp::tools
