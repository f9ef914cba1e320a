// What a worker's MODEL_INFO says.
#pragma once

#include <string>

#include "lmtp/base/result.h"
#include "lmtp/engine/engine.h"
#include "lmtp/registry/models.h"

namespace lmtp::balance {

struct WorkerInfo {
  registry::ModelStatus status;  // without error; its stats have what MODEL_INFO has of them
  std::string state;             // as MODEL_INFO names it

  bool is_ready() const { return status.state == registry::ModelState::kReady; }
};

// What is missing, or of another type, is an error where streams depend on it.
Result<WorkerInfo> parse_worker_info(const std::string& json);

// The error names what of it differs, and the values.
Result<void> check_same(const engine::ModelLimits& one, const std::string& name_of_one,
                        const engine::ModelLimits& other, const std::string& name_of_other);

// Adds the counters; and what holds now.
void add_counters(const engine::EngineStats& of_one, engine::EngineStats& sum);
void add_gauges(const engine::EngineStats& of_one, engine::EngineStats& sum);

}  // namespace lmtp::balance
