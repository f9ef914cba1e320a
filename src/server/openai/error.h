// Errors as OpenAI's API answers them.
#pragma once

#include <string>
#include <string_view>

#include "lmtp/base/result.h"
#include "lmtp/server/http.h"
#include "route_table.h"

namespace lmtp::server {

// {"error": {"message", "type", "param", "code"}}; param is the field that the message begins with.
std::string openai_error_json(const Error& error, bool no_model = false);

// With its status, and how long to wait.
HttpResponse openai_error(const Error& error, bool no_model = false);

// Answers so, and counts it: what a Read returns of a request that is wrong.
Then openai_refusal(ServerContext& context, const Error& error, const ResponderPtr& responder);

// 404 for what is kept here for a time alone.
HttpResponse openai_not_found(std::string_view sentence, std::string_view param,
                              std::string_view code);

// The body for what never became a request: another method, too long a body, no key.
std::string openai_refusal_json(int status, std::string_view sentence);

}  // namespace lmtp::server
