// Errors as TGI's API answers them.
#pragma once

#include <string>
#include <string_view>

#include "lmtp/base/result.h"
#include "lmtp/server/http.h"

namespace lmtp::server {

struct TgiError {
  int status = 422;
  std::string_view type = "validation";  // of a constant
  std::string sentence;
  int retry_after_ms = 0;  // 0: it would fail again
};

// What a field's value is refused with; `what` is TGI's own sentence where TGI has one.
TgiError tgi_validation(std::string_view what);

// Of a generation. `no_model`: it is unknown, or could not be loaded.
TgiError tgi_error(const Error& error, bool no_model);

// The same of a chat, whose prompt a template makes.
TgiError tgi_chat_error(const Error& error, bool no_model);

// {"error", "error_type"}.
std::string tgi_error_json(const TgiError& error);

// The same as an answer, with how long to wait.
HttpResponse tgi_response(const TgiError& error);

// The body for what never became a request: no key, another method, too long a body.
std::string tgi_refusal_json(int status, std::string_view sentence);

}  // namespace lmtp::server
