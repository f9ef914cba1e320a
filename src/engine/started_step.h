// What an engine keeps of a step that its agent has begun.
#pragma once

#include <chrono>
#include <optional>

#include "lmtp/base/result.h"
#include "lmtp/scheduler/step_plan.h"

namespace lmtp::engine {

struct StartedStep {
  const scheduler::StepPlan* plan = nullptr;  // until its commit
  int num_tokens = 0;
  int num_rows = 0;
  std::chrono::steady_clock::time_point since;
  std::optional<Error> error = Error{ErrorCode::kInternal, "was not begun"};  // why it cannot go on
  bool is_ahead = false;
  bool has_masks = false;  // so its tokens are not chosen yet
};

}  // namespace lmtp::engine
