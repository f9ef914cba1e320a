// Errors as AICI's API answers them: a line of text, "APIError: ...".
#pragma once

#include <string>
#include <string_view>

#include "http/message.h"
#include "lmtp/base/result.h"
#include "lmtp/request/error_kind.h"
#include "lmtp/server/http.h"

namespace lmtp::server {

inline HttpResponse aici_refusal(int status, std::string_view sentence) {
  return plain_text(status, "APIError: " + std::string(sentence));
}

// `no_model`: what was not found is the model, and no controller.
inline HttpResponse aici_error(const Error& error, bool no_model) {
  constexpr int kInvalidStatus = 400;
  constexpr int kNotFoundStatus = 404;
  const int status = error_kind(error.code).http_status;
  HttpResponse response =
      aici_refusal(status == kNotFoundStatus && !no_model ? kInvalidStatus : status, error.message);
  set_retry_after(retry_after_ms(error), response);
  return response;
}

}  // namespace lmtp::server
