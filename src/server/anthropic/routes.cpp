#include "routes.h"

#include <string>
#include <utility>

#include "answer.h"
#include "context.h"
#include "error.h"
#include "generation/prompts_answer.h"
#include "lmtp/base/json_writer.h"
#include "lmtp/text/chat_template.h"
#include "openai/request.h"
#include "request.h"

namespace lmtp::server {
namespace {

HttpResponse anthropic_refusal(int status, std::string_view sentence) {
  return {status, "application/json", anthropic_refusal_json(status, sentence)};
}

using AnswerMessages = void(ServerContext&, MessagesRequest, const ResponderPtr&);

Then read_and_answer(ServerContext& context, const HttpRequest& http, const ResponderPtr& responder,
                     bool counts, AnswerMessages* answer) {
  if (!text::renders_chat_templates()) {
    constexpr int kNotImplemented = 501;
    return
        [responder] { responder->send(anthropic_refusal(kNotImplemented, kRendersNoTemplates)); };
  }
  auto request = read_messages(http.body, context.options.api, counts);
  return [&context, responder, answer, request = std::move(request)]() mutable {
    if (request) return answer(context, std::move(*request), responder);
    context.generation.models.refusals().add(request.error().code);
    responder->send(anthropic_error(request.error()));
  };
}

void answer_count(ServerContext& context, MessagesRequest request, const ResponderPtr& responder) {
  auto make_body = [](const registry::ReadyModel& /*model*/, const Prompts& prompts) {
    std::string out;
    JsonWriter(out).begin_object().field("input_tokens", prompts.front().size());
    return out + "}\n";
  };
  answer_prompts(context.generation, std::move(request.generation), responder, make_body,
                 anthropic_error);
}

}  // namespace

HttpResponse anthropic_wrong_type() {
  constexpr int kUnsupportedType = 415;
  return anthropic_refusal(kUnsupportedType, "Content-Type: allowed is application/json.");
}

Then anthropic_messages(ServerContext& context, HttpRequest& http, const ResponderPtr& responder) {
  return read_and_answer(context, http, responder, false, answer_messages);
}

Then anthropic_count_tokens(ServerContext& context, HttpRequest& http,
                            const ResponderPtr& responder) {
  return read_and_answer(context, http, responder, true, answer_count);
}

}  // namespace lmtp::server
