// POST /v1/run: a prompt goes on by a controller, and each step is an event.
#pragma once

#include <memory>
#include <string>

#include "context.h"
#include "generation/generation.h"
#include "lmtp/base/result.h"
#include "lmtp/server/http.h"

namespace lmtp::server {

// Any thread. The error names the field.
Result<GenerationRequest> read_run(const std::string& body);

// Generates and answers. `context` outlives the connection. Thread: the strand of `responder`.
void answer_run(ServerContext& context, GenerationRequest request,
                const std::shared_ptr<HttpResponder>& responder);

}  // namespace lmtp::server
