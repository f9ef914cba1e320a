// The answer to /v1/messages.
#pragma once

#include <memory>

#include "context.h"
#include "lmtp/server/http.h"
#include "request.h"

namespace lmtp::server {

// Generates and answers. `context` outlives the connection. Thread: the strand of `responder`.
void answer_messages(ServerContext& context, MessagesRequest request,
                     const std::shared_ptr<HttpResponder>& responder);

}  // namespace lmtp::server
