// GET /metrics: what the models' engines and the server count, in Prometheus' text format.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lmtp/registry/models.h"
#include "lmtp/server/server.h"
#include "route_table.h"

namespace lmtp::server {

// Each metric has one series for every model that has an engine, labelled with its name; the
// server's own have no label of a model. num_wakeups: Mailroom::num_wakeups(). Any thread.
std::string metrics_text(const std::vector<registry::ModelStatus>& models,
                         const registry::RefusalCounts& refusals,
                         const MetricsAliases& aliases = {}, std::int64_t num_wakeups = 0);

Handle answer_metrics;

}  // namespace lmtp::server
