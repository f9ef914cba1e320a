#include "routes.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>

#include "answer.h"
#include "context.h"
#include "error.h"
#include "lmtp/base/json.h"
#include "openai/routes.h"
#include "request.h"

namespace lmtp::server {

HttpResponse tgi_wrong_type() {
  return tgi_response(
      {415, "validation", "Expected request with `Content-Type: application/json`"});
}

Then tgi_generate(ServerContext& context, HttpRequest& http, const ResponderPtr& responder) {
  TgiMode mode = TgiMode::kEither;
  if (http.path == "/generate") mode = TgiMode::kWhole;
  if (http.path == "/generate_stream") mode = TgiMode::kStream;
  return [&context, responder, request = read_tgi(http.body, mode, context.options.api)]() mutable {
    if (auto* whole = std::get_if<TgiRequest>(&request)) {
      return answer_tgi(context, std::move(*whole), responder);
    }
    context.generation.models.refusals().add(ErrorCode::kInvalid);
    responder->send(tgi_response(std::get<TgiError>(request)));
  };
}

Then invocations(ServerContext& context, HttpRequest& http, const ResponderPtr& responder) {
  const auto body = parse_json(http.body, "body");
  const bool is_generate = !body || find_json(*body, "inputs") != nullptr;
  Read* read = tgi_generate;
  if (!is_generate && find_json(*body, "messages") != nullptr) read = openai_chat;
  if (!is_generate && find_json(*body, "prompt") != nullptr) read = openai_completions;
  return read(context, http, responder);
}

Then tokenize(ServerContext& context, HttpRequest& http, const ResponderPtr& responder) {
  const auto body = parse_json(http.body, "body");
  const bool is_tgi = body && body->contains("inputs");
  return (is_tgi ? tgi_tokenize : openai_tokenize)(context, http, responder);
}

}  // namespace lmtp::server
