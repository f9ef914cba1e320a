// What the server itself answers to plain HTTP: the page for people and the state for monitors.
#pragma once

#include <string_view>

#include "lmtp/registry/models.h"
#include "lmtp/server/http.h"

namespace lmtp::server {

// How to connect, as HTML. `host` as the client called the server; any text.
HttpResponse landing_page(std::string_view host, bool is_tls, const registry::Models& models,
                          std::string_view version);

// 200 where the server can answer requests, else 503. `names_models`: says which there are.
HttpResponse health(const registry::Models& models, bool names_models = true);

// GET / and /health, which needs no key, but where there are keys names models only to those who
// have one. `models` outlives the routes.
void add_pages(HttpRoutes& routes, bool is_tls, const registry::Models& models,
               std::string_view version, bool needs_key);

}  // namespace lmtp::server
