#include "error.h"

#include <nlohmann/json.hpp>

#include "http/message.h"
#include "lmtp/base/json.h"
#include "lmtp/request/error_kind.h"

namespace lmtp::server {
namespace {

std::string_view tgi_type_of(int status) {
  switch (status) {
    case 401:
      return "invalid_api_key";
    case 403:
      return "insufficient_permissions";
    case 429:
    case 503:
      return "overloaded";
    default:
      return "validation";
  }
}

}  // namespace

TgiError tgi_validation(std::string_view what) {
  return {422, "validation", "Input validation error: " + std::string(what)};
}

TgiError tgi_error(const Error& error, bool no_model) {
  const ErrorKind& kind = error_kind(error.code);
  if (kind.http_status == 404) return {404, "not_found", error.message};
  if (kind.http_status == 400) {
    return no_model ? TgiError{422, "validation", error.message} : tgi_validation(error.message);
  }
  if (error.code == ErrorCode::kOverloaded) {
    return {kind.http_status, "overloaded", "Model is overloaded", retry_after_ms(error)};
  }
  // What a retry may heal says so by its status, which TGI's does not distinguish.
  const int status = kind.retry_after_ms > 0 ? kind.http_status : 424;
  return {status, "generation", "Request failed during generation: " + error.message,
          retry_after_ms(error)};
}

TgiError tgi_chat_error(const Error& error, bool no_model) {
  if (no_model || error_kind(error.code).http_status != 400) return tgi_error(error, no_model);
  return {422, "template_error", "Template error: " + error.message};
}

std::string tgi_error_json(const TgiError& error) {
  return json_text({{"error", error.sentence}, {"error_type", error.type}});
}

HttpResponse tgi_response(const TgiError& error) {
  HttpResponse response{error.status, "application/json", tgi_error_json(error)};
  set_retry_after(error.retry_after_ms, response);
  return response;
}

std::string tgi_refusal_json(int status, std::string_view sentence) {
  return tgi_error_json({status, tgi_type_of(status), std::string(sentence)});
}

}  // namespace lmtp::server
