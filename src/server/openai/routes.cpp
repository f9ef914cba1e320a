#include "routes.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "adapters.h"
#include "answer.h"
#include "error.h"
#include "generation/fresh.h"
#include "generation/read_body.h"
#include "http/message.h"
#include "http/pages.h"
#include "lmtp/base/json.h"
#include "lmtp/server/http.h"
#include "lmtp/text/chat_template.h"
#include "models.h"
#include "request.h"
#include "tokenize.h"

namespace lmtp::server {
namespace {

using ReadRequest = Result<OpenAiRequest> (*)(const std::string& body, const ApiLimits&);

HttpResponse wrong_type() {
  constexpr int kUnsupportedType = 415;
  return {kUnsupportedType, "application/json",
          openai_refusal_json(kUnsupportedType, "Content-Type: allowed is application/json.")};
}

// `read` is given the body, as read_body() says.
template <typename Read>
void add_post(ServerContext& context, std::string path, Read read) {
  context.routes.post(std::move(path), context.options.max_message_bytes,
                      [&context, read](HttpRequest http, const auto& responder) {
                        if (!is_json(http)) return responder->send(wrong_type());
                        read_body(context, std::move(http), responder,
                                  [&context, read, responder](const HttpRequest& whole) {
                                    return read(context, whole.body, responder);
                                  });
                      });
}

void add_generating(ServerContext& context, std::string path, ReadRequest read) {
  add_post(context, std::move(path),
           [read](ServerContext& shared, const std::string& body, const auto& responder) {
             return [&shared, responder, request = read(body, shared.options.api)]() mutable {
               if (request) return answer_openai(shared, std::move(*request), responder);
               shared.generation.models.refusals().add(request.error().code);
               responder->send(openai_error(request.error()));
             };
           });
}

void add_models(ServerContext& context) {
  constexpr std::string_view kPath = "/v1/models";
  const std::int64_t created = unix_seconds();
  context.routes.get(std::string(kPath), [&context, created](const auto&, const auto& responder) {
    const auto caller = responder->caller();
    const Account* const account = caller->account.get();
    responder->send(openai_models(context.generation.models, account, created));
  });
  const std::string below = std::string(kPath) + "/";
  context.routes.get_below(below, [&context, created, size = below.size()](const HttpRequest& http,
                                                                           const auto& responder) {
    answer_openai_model(context.generation.models, created, percent_decoded(http.path.substr(size)),
                        responder);
  });
}

std::function<void()> refuse_chats(ServerContext& /*context*/, const std::string& /*body*/,
                                   const std::shared_ptr<HttpResponder>& responder) {
  constexpr int kNotImplemented = 501;
  return [responder] {
    responder->send({kNotImplemented, "application/json",
                     openai_refusal_json(kNotImplemented, kRendersNoTemplates)});
  };
}

}  // namespace

void add_openai(ServerContext& context) {
  context.routes.error_bodies("/v1/", openai_refusal_json);
  add_generating(context, "/v1/completions", read_completion);
  if (text::renders_chat_templates()) {
    add_generating(context, "/v1/chat/completions", read_chat);
  } else {
    add_post(context, "/v1/chat/completions", refuse_chats);
  }
  add_models(context);
  add_adapters(context);
  add_post(context, "/detokenize", read_openai_detokenize);
  context.routes.get("/version", [&context](const auto&, const auto& responder) {
    responder->send(
        {200, "application/json", json_text({{"version", context.options.version}}) + "\n"});
  });
  const auto ping = [&context](const auto&, const auto& responder) {
    responder->send(health(context.generation.models));
  };
  context.routes.get("/ping", ping);
  context.routes.post("/ping", 0, ping);
}

}  // namespace lmtp::server
