// What the server itself answers to plain HTTP: the page for people and the state for monitors.
#pragma once

#include <string_view>

#include "lmtp/registry/registry.h"
#include "lmtp/server/http.h"

namespace lmtp::server {

// How to connect, as HTML. `host` as the client called the server; any text.
HttpResponse landing_page(std::string_view host, const registry::Registry& models,
                          std::string_view version);

// 200 where the server can answer requests, else 503.
HttpResponse health(const registry::Registry& models);

// GET / and /health. `models` outlives the routes.
void add_pages(HttpRoutes& routes, const registry::Registry& models, std::string_view version);

}  // namespace lmtp::server
