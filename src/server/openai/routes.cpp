#include "routes.h"

#include <utility>

#include "answer.h"
#include "context.h"
#include "error.h"
#include "lmtp/text/chat_template.h"
#include "request.h"

namespace lmtp::server {
namespace {

Then answer_read(ServerContext& context, Result<OpenAiRequest> request,
                 const ResponderPtr& responder) {
  return [&context, responder, request = std::move(request)]() mutable {
    if (request) return answer_openai(context, std::move(*request), responder);
    context.generation.models.refusals().add(request.error().code);
    responder->send(openai_error(request.error()));
  };
}

}  // namespace

HttpResponse openai_wrong_type() {
  constexpr int kUnsupportedType = 415;
  return {kUnsupportedType, "application/json",
          openai_refusal_json(kUnsupportedType, "Content-Type: allowed is application/json.")};
}

Then openai_completions(ServerContext& context, HttpRequest& http, const ResponderPtr& responder) {
  return answer_read(context, read_completion(http.body, context.options.api), responder);
}

Then openai_chat(ServerContext& context, HttpRequest& http, const ResponderPtr& responder) {
  if (text::renders_chat_templates()) {
    return answer_read(context, read_chat(http.body, context.options.api), responder);
  }
  constexpr int kNotImplemented = 501;
  return [responder] {
    responder->send({kNotImplemented, "application/json",
                     openai_refusal_json(kNotImplemented, kRendersNoTemplates)});
  };
}

}  // namespace lmtp::server
