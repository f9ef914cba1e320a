// What the server itself answers to plain HTTP: the page for people and the state for monitors.
#pragma once

#include <string_view>

#include "lmtp/engine/model_manager.h"
#include "lmtp/server/http.h"

namespace lmtp::server {

// How to connect, as HTML. `host` as the client called the server; any text.
HttpResponse landing_page(std::string_view host, const engine::ModelManager& models,
                          std::string_view version);

// 200 where the server can answer requests, else 503.
HttpResponse health(const engine::ModelManager& models);

// GET / and /health. `models` outlives the routes.
void add_pages(HttpRoutes& routes, const engine::ModelManager& models, std::string_view version);

}  // namespace lmtp::server
