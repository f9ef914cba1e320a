// GET /metrics: what the models' engines count, in Prometheus' text format.
#pragma once

#include <string>
#include <vector>

#include "lmtp/registry/registry.h"
#include "lmtp/server/http.h"

namespace lmtp::server {

// One series each for every model that has an engine, labelled with its name. Any thread.
std::string metrics_text(const std::vector<registry::ModelStatus>& models);

// GET /metrics. `models` outlives the routes.
void add_metrics(HttpRoutes& routes, const registry::Registry& models);

}  // namespace lmtp::server
