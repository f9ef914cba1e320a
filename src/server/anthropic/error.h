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

// What never became a request: its body, and its status where that is another one here.
std::string anthropic_refusal_json(int status, std::string_view sentence);
int anthropic_refusal_status(int status, std::string_view sentence);

}  // namespace lmtp::server
