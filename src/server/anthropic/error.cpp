#include "error.h"

#include <algorithm>

#include "http/message.h"
#include "lmtp/base/json_writer.h"
#include "lmtp/request/error_kind.h"

namespace lmtp::server {
namespace {

constexpr int kOverloadedStatus = 529;  // Anthropic's own

std::string_view anthropic_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 504:
      return "timeout_error";
    case kOverloadedStatus:
      return "overloaded_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

// Errors of what a key, a connection or an address may have say whose it is: a retry helps once
// that has less under way, or has waited. (src/request/account.cpp, src/registry/model_route.cpp)
bool is_of_caller(std::string_view sentence) {
  constexpr std::string_view kWhose[] = {" of the key '", ": the key '", " of this key ",
                                         " of this connection ", " of this address"};
  return std::ranges::any_of(kWhose, [&](std::string_view whose) {
    return sentence.find(whose) != std::string_view::npos;
  });
}

int anthropic_status(const Error& error) {
  const int status = error_kind(error.code).http_status;
  const bool is_servers = error.code == ErrorCode::kOverloaded && !is_of_caller(error.message);
  return is_servers ? kOverloadedStatus : status;
}

}  // namespace

int anthropic_refusal_status(int status, std::string_view sentence) {
  const bool is_busy = status == 429 && sentence.starts_with("overloaded:");
  const bool is_servers =
      (is_busy && !is_of_caller(sentence)) || sentence.starts_with("unfinished messages ");
  return is_servers ? kOverloadedStatus : status;
}

std::string anthropic_refusal_json(int status, std::string_view sentence) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("type", "error").key("error").begin_object();
  json.field("type", anthropic_type(status)).field("message", sentence).end_object().end_object();
  return out + '\n';
}

std::string anthropic_error_json(const Error& error) {
  return anthropic_refusal_json(anthropic_status(error), error.message);
}

HttpResponse anthropic_error(const Error& error, bool /*no_model*/) {
  HttpResponse response{anthropic_status(error), "application/json", anthropic_error_json(error)};
  set_retry_after(retry_after_ms(error), response);
  return response;
}

}  // namespace lmtp::server
