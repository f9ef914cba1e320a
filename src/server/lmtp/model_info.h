// The answer to MODEL_INFO.
#pragma once

#include <string>
#include <string_view>

#include "lmtp/engine/model_manager.h"

namespace lmtp::server {

// A JSON object; its fields are described in docs/lmtp.md. `asked_name` is echoed as "model" where
// it is not empty. Any thread.
std::string model_info_json(const engine::ModelStatus& status, std::string_view asked_name,
                            std::string_view version);

// "unloaded", "loading", "ready", "failed" or "stopping".
std::string_view state_name(engine::ModelState state);

}  // namespace lmtp::server
