// The answer to MODEL_INFO.
#pragma once

#include <string>
#include <string_view>

#include "lmtp/registry/models.h"

namespace lmtp::server {

// What MODEL_INFO says of the server.
struct ServerTraits {
  std::string version;
  bool runs_controllers = false;
};

// A JSON object; its fields are described in docs/lmtp.md. `asked_name` is echoed as "model" where
// it is not empty, unless the description hides the path, which it may be. Any thread.
std::string model_info_json(const registry::ModelStatus& status, std::string_view asked_name,
                            const ServerTraits& server);

// "unloaded", "loading", "ready", "failed" or "stopping".
std::string_view state_name(registry::ModelState state);

}  // namespace lmtp::server
