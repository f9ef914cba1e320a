// AICI's routes: controllers are uploaded and named at /v1/controllers, and run at /v1/run.
#pragma once

#include "context.h"

namespace lmtp::server {

// `context` outlives the connections.
void add_aici(ServerContext& context);

}  // namespace lmtp::server
