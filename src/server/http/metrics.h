// GET /metrics: what the models' engines and the server count, in Prometheus' text format.
#pragma once

#include <string>
#include <vector>

#include "lmtp/registry/registry.h"
#include "lmtp/server/http.h"
#include "refusals.h"

namespace lmtp::server {

// One series each for every model that has an engine, labelled with its name, and the server's own
// without. Any thread.
std::string metrics_text(const std::vector<registry::ModelStatus>& models,
                         const Refusals& refusals);

// GET /metrics. `models` and `refusals` outlive the routes.
void add_metrics(HttpRoutes& routes, const registry::Registry& models, const Refusals& refusals);

}  // namespace lmtp::server
