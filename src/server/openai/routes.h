// OpenAI's HTTP API, with vLLM's additions: docs/http.md.
#pragma once

#include "context.h"

namespace lmtp::server {

// Owner of the routes: `context`, before the server starts.
void add_openai(ServerContext& context);

}  // namespace lmtp::server
