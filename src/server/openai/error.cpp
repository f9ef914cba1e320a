#include "error.h"

#include <nlohmann/json.hpp>

#include "context.h"
#include "http/message.h"
#include "lmtp/base/json.h"
#include "lmtp/request/error_kind.h"

namespace lmtp::server {
namespace {

struct Names {
  std::string_view type;
  std::string_view code;  // empty: null
};

Names names_of(int status) {
  switch (status) {
    case 401:
      return {"invalid_request_error", "invalid_api_key"};
    case 403:
      return {"permission_error", "insufficient_permissions"};
    case 429:
      return {"rate_limit_error", "rate_limit_exceeded"};
    case 500:
      return {"server_error", ""};
    case 501:
      return {"server_error", "not_implemented"};
    case 503:
      return {"server_error", "unavailable"};
    default:
      return {"invalid_request_error", ""};
  }
}

std::string error_json(std::string_view message, Names names, std::string_view param) {
  const auto or_null = [](std::string_view text) {
    return text.empty() ? OrderedJson() : OrderedJson(text);
  };
  return json_text({{"error",
                     {{"message", message},
                      {"type", names.type},
                      {"param", or_null(param)},
                      {"code", or_null(names.code)}}}});
}

// The field's name in front of what is wrong with it.
std::string_view field_of(std::string_view message) {
  const std::size_t end = message.find_first_of(":[ ");
  if (end == std::string_view::npos || message[end] == ' ') return {};
  return message.substr(0, end);
}

}  // namespace

std::string openai_error_json(const Error& error, bool no_model) {
  const int status = error_kind(error.code).http_status;
  Names names = names_of(status);
  std::string_view param;
  if (error.code == ErrorCode::kTooLong) names.code = "context_length_exceeded";
  if (status == 400) param = field_of(error.message);
  if (no_model) {
    if (status == 404 || status == 400) names.code = "model_not_found";
    param = "model";
  }
  return error_json(error.message, names, param);
}

HttpResponse openai_error(const Error& error, bool no_model) {
  const ErrorKind& kind = error_kind(error.code);
  HttpResponse response{kind.http_status, "application/json", openai_error_json(error, no_model)};
  set_retry_after(retry_after_ms(error), response);
  return response;
}

HttpResponse openai_not_found(std::string_view sentence, std::string_view param,
                              std::string_view code) {
  return {404, "application/json", error_json(sentence, {"invalid_request_error", code}, param)};
}

Then openai_refusal(ServerContext& context, const Error& error, const ResponderPtr& responder) {
  return [&context, error, responder] {
    context.generation.models.refusals().add(error.code);
    responder->send(openai_error(error));
  };
}

std::string openai_refusal_json(int status, std::string_view sentence) {
  return error_json(sentence, names_of(status), {});
}

}  // namespace lmtp::server
