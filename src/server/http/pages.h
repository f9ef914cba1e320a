// The server's own pages: one for people, and its state for monitors.
#pragma once

#include <string_view>

#include "access/caller_models.h"
#include "lmtp/server/http.h"
#include "lmtp/server/server.h"
#include "route_table.h"

namespace lmtp::server {

// Types of the server's own answers (schemas.h).
inline constexpr std::string_view kOwnTypes = R"(
Health
  status! 'unloaded'|'loading'|'ready'|'failed'|'stopping'|'unavailable'
  model string
  loaded string[]
  error 'unhealthy'
  error_type 'healthcheck'
)";

// How to connect, as HTML. `host` as the client called the server; any text.
HttpResponse landing_page(std::string_view host, bool is_tls, const CallerModels& models,
                          const ServerOptions& options);

// 200 where the server can answer requests, else 503. `names_models`: says which there are for the
// caller.
HttpResponse health(const CallerModels& models, bool names_models = true);

Handle answer_page;
Handle answer_health;  // needs no key; with keys, names models only to callers that have one
Handle answer_ping;
Handle answer_version;

}  // namespace lmtp::server
