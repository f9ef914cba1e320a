// The answer to /v1/completions or /v1/chat/completions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "context.h"
#include "lmtp/server/http.h"
#include "request.h"

namespace lmtp::server {

// Now, in seconds since 1970.
std::int64_t unix_seconds();

// `prefix` and random digits: no other answer has it.
std::string fresh_id(std::string_view prefix);

// Generates and answers. `context` outlives the connection. Thread: the strand of `responder`.
void answer_openai(ServerContext& context, OpenAiRequest request,
                   const std::shared_ptr<HttpResponder>& responder);

}  // namespace lmtp::server
