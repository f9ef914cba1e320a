// The bodies of /v1/messages and /v1/messages/count_tokens.
#pragma once

#include <optional>
#include <string>

#include "generation/generation.h"
#include "lmtp/base/result.h"
#include "lmtp/server/server.h"

namespace lmtp::server {

struct MessagesRequest {
  bool streams = false;
  std::optional<int> max_tokens = {};
  GenerationRequest generation = {};
};

// The errors begin with the name of the field that they are about. `counts`: of count_tokens, which
// needs no max_tokens.
Result<MessagesRequest> read_messages(const std::string& body, const ApiLimits& limits,
                                      bool counts);

}  // namespace lmtp::server
