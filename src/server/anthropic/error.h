// Errors as Anthropic's API answers them.
#pragma once

#include <string>
#include <string_view>

#include "lmtp/base/result.h"
#include "lmtp/server/http.h"

namespace lmtp::server {

// {"type": "error", "error": {"type", "message"}}. No error is of the model alone: `no_model` does
// not count.
std::string anthropic_error_json(const Error& error);

// With its status, 529 where the server is overloaded, and how long to wait.
HttpResponse anthropic_error(const Error& error, bool no_model = false);

// The body for what never became a request.
std::string anthropic_refusal_json(int status, std::string_view sentence);

}  // namespace lmtp::server
