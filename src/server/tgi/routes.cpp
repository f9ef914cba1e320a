#include "routes.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>

#include "answer.h"
#include "error.h"
#include "http/message.h"
#include "info.h"
#include "lmtp/base/json.h"
#include "lmtp/text/chat_template.h"
#include "openai/request.h"
#include "openai/tokenize.h"
#include "request.h"
#include "tokenize.h"

namespace lmtp::server {
namespace {

void add_post(ServerContext& context, std::string path, HttpHandler handler) {
  context.routes.post(
      std::move(path), context.options.max_message_bytes,
      [handler = std::move(handler)](HttpRequest http, const auto& responder) {
        if (!is_json(http)) {
          return responder->send(tgi_response(
              {415, "validation", "Expected request with `Content-Type: application/json`"}));
        }
        handler(std::move(http), responder);
      });
}

void add_generating(ServerContext& context, std::string path, TgiMode mode) {
  add_post(context, std::move(path), [&context, mode](const HttpRequest& http, const auto& to) {
    auto request = read_tgi(http.body, mode, context.options.api);
    if (const auto* error = std::get_if<TgiError>(&request)) {
      context.generation.models.refusals().add(ErrorCode::kInvalid);
      return to->send(tgi_response(*error));
    }
    answer_tgi(context, std::move(std::get<TgiRequest>(request)), to);
  });
}

// SageMaker's one path for all that a server can do: the body says what is meant.
void answer_invocation(const ServerContext& context, HttpRequest http,
                       const std::shared_ptr<HttpResponder>& responder) {
  const auto body = parse_json(http.body, "body");
  const bool is_generate = !body || find_json(*body, "inputs") != nullptr;
  const char* path = "/";
  if (!is_generate && find_json(*body, "messages") != nullptr) path = "/v1/chat/completions";
  if (!is_generate && find_json(*body, "prompt") != nullptr) path = "/v1/completions";
  const HttpRoute* route = context.routes.find("POST", path);
  if (route == nullptr) route = context.routes.find("POST", "/");
  route->handler(std::move(http), responder);
}

}  // namespace

void add_tgi(ServerContext& context) {
  for (const char* path : {"/generate", "/tokenize", "/chat_tokenize", "/info", "/invocations"}) {
    context.routes.error_bodies(path, tgi_refusal_json);
  }
  add_generating(context, "/", TgiMode::kEither);
  add_generating(context, "/generate", TgiMode::kWhole);
  add_generating(context, "/generate_stream", TgiMode::kStream);
  add_post(context, "/invocations", [&context](HttpRequest http, const auto& responder) {
    answer_invocation(context, std::move(http), responder);
  });
  // TGI's, or vLLM's: told apart by the field that has the text.
  add_post(context, "/tokenize", [&context](const HttpRequest& http, const auto& responder) {
    const auto body = parse_json(http.body, "body");
    const bool is_tgi = body && body->contains("inputs");
    if (is_tgi) return answer_tgi_tokenize(context, http, responder);
    answer_openai_tokenize(context, http.body, responder);
  });
  add_post(context, "/chat_tokenize", [&context](const HttpRequest& http, const auto& responder) {
    if (text::renders_chat_templates()) return answer_tgi_chat_tokenize(context, http, responder);
    responder->send(tgi_response({501, "template_error", std::string(kRendersNoTemplates)}));
  });
  context.routes.get("/info", [&context](const HttpRequest& /*http*/, const auto& responder) {
    responder->send(tgi_info(context));
  });
}

}  // namespace lmtp::server
