#include "routes.h"

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>

#include "answer.h"
#include "error.h"
#include "generation/read_body.h"
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

// `read` is given the request, as read_body() says.
template <typename Read>
void add_tgi_post(ServerContext& context, std::string path, Read read) {
  context.routes.post(
      std::move(path), context.options.max_message_bytes,
      [&context, read = std::move(read)](HttpRequest http, const auto& responder) {
        if (!is_json(http)) {
          return responder->send(tgi_response(
              {415, "validation", "Expected request with `Content-Type: application/json`"}));
        }
        read_body(context, std::move(http), responder, [&context, read, responder](auto&& whole) {
          return read(context, std::forward<decltype(whole)>(whole), responder);
        });
      });
}

void add_tgi_generating(ServerContext& context, std::string path, TgiMode mode) {
  add_tgi_post(context, std::move(path),
               [mode](ServerContext& shared, const HttpRequest& http, const auto& to) {
                 auto request = read_tgi(http.body, mode, shared.options.api);
                 return [&shared, to, request = std::move(request)]() mutable {
                   if (auto* whole = std::get_if<TgiRequest>(&request)) {
                     return answer_tgi(shared, std::move(*whole), to);
                   }
                   shared.generation.models.refusals().add(ErrorCode::kInvalid);
                   to->send(tgi_response(std::get<TgiError>(request)));
                 };
               });
}

// SageMaker's one path for all that a server can do: the body says what is meant.
std::function<void()> read_invocation(const ServerContext& context, HttpRequest http,
                                      const std::shared_ptr<HttpResponder>& responder) {
  const auto body = parse_json(http.body, "body");
  const bool is_generate = !body || find_json(*body, "inputs") != nullptr;
  const char* path = "/";
  if (!is_generate && find_json(*body, "messages") != nullptr) path = "/v1/chat/completions";
  if (!is_generate && find_json(*body, "prompt") != nullptr) path = "/v1/completions";
  const HttpRoute* route = context.routes.find("POST", path);
  if (route == nullptr) route = context.routes.find("POST", "/");
  return [route, responder, http = std::move(http)]() mutable {
    route->handler(std::move(http), responder);
  };
}

// TGI's, or vLLM's: told apart by the field that has the text.
std::function<void()> read_tokenize_of_either(ServerContext& context, const HttpRequest& http,
                                              const std::shared_ptr<HttpResponder>& responder) {
  const auto body = parse_json(http.body, "body");
  const bool is_tgi = body && body->contains("inputs");
  return (is_tgi ? read_tgi_tokenize : read_openai_tokenize)(context, http.body, responder);
}

std::function<void()> read_chat_tokenize(ServerContext& context, const HttpRequest& http,
                                         const std::shared_ptr<HttpResponder>& responder) {
  if (text::renders_chat_templates()) return read_tgi_chat_tokenize(context, http.body, responder);
  return [responder] {
    responder->send(tgi_response({501, "template_error", std::string(kRendersNoTemplates)}));
  };
}

}  // namespace

void add_tgi(ServerContext& context) {
  for (const char* path : {"/generate", "/tokenize", "/chat_tokenize", "/info", "/invocations"}) {
    context.routes.error_bodies(path, tgi_refusal_json);
  }
  add_tgi_generating(context, "/", TgiMode::kEither);
  add_tgi_generating(context, "/generate", TgiMode::kWhole);
  add_tgi_generating(context, "/generate_stream", TgiMode::kStream);
  add_tgi_post(context, "/invocations", read_invocation);
  add_tgi_post(context, "/tokenize", read_tokenize_of_either);
  add_tgi_post(context, "/chat_tokenize", read_chat_tokenize);
  context.routes.get("/info", [&context](const HttpRequest& /*http*/, const auto& responder) {
    responder->send(tgi_info(context));
  });
}

}  // namespace lmtp::server
