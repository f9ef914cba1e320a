// GET /openapi.json: the routes, described for programs in OpenAPI 3.1.
#pragma once

#include <string>

#include "lmtp/server/server.h"
#include "route_table.h"

namespace lmtp::server {

// Describes the routes that are served with these options. `needs_key`: the server asks for keys.
std::string openapi_text(const ServerOptions& options, bool needs_key);

Handle answer_openapi;

}  // namespace lmtp::server
