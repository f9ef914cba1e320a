// TGI's HTTP API: docs/http.md.
#pragma once

#include "context.h"

namespace lmtp::server {

// Owner of the routes: `context`, before the server starts.
void add_tgi(ServerContext& context);

}  // namespace lmtp::server
