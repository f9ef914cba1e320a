// POST /v1/load_lora_adapter and /v1/unload_lora_adapter, as vLLM has them.
#pragma once

#include "context.h"

namespace lmtp::server {

// Where ServerOptions::allow_runtime_lora is set; they need the right admin.
void add_adapters(ServerContext& context);

}  // namespace lmtp::server
