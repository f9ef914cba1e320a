// The answer to POST /v1/responses.
#pragma once

#include <memory>

#include "context.h"
#include "lmtp/server/http.h"
#include "request.h"

namespace lmtp::server {

// Whose responses a request may ask for.
ConnectionId responses_owner(const HttpResponder& responder);

// Generates, answers, and keeps the answer where the request wants that. `context` outlives the
// connection. Thread: the strand of `responder`.
void answer_response(ServerContext& context, ResponseRequest request,
                     const std::shared_ptr<HttpResponder>& responder);

}  // namespace lmtp::server
