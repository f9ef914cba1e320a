// vLLM's POST /tokenize and /detokenize.
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "context.h"
#include "error.h"
#include "generation/json_fields.h"
#include "generation/prompts_answer.h"
#include "lmtp/base/json.h"
#include "lmtp/base/json_writer.h"
#include "lmtp/request/error_text.h"
#include "request.h"
#include "routes.h"

namespace lmtp::server {
namespace {

std::string tokens_body(const registry::ReadyModel& model, const std::vector<TokenId>& ids,
                        bool with_texts) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("count", ids.size());
  json.field("max_model_len", model.limits.context_length).field("tokens", ids);
  json.key("token_strs");
  if (with_texts) {
    json.begin_array();
    for (const TokenId id : ids) json.value((*model.tokenizer)->token_bytes(id));
    json.end_array();
  } else {
    json.value(nullptr);
  }
  json.end_object();
  return out + "\n";
}

Then refusal(ServerContext& context, const Error& error, const ResponderPtr& responder) {
  return [&context, error, responder] {
    context.generation.models.refusals().add(error.code);
    responder->send(openai_error(error));
  };
}

}  // namespace

Then openai_tokenize(ServerContext& context, HttpRequest& http, const ResponderPtr& responder) {
  auto request = read_tokenize(http.body);
  if (!request) return refusal(context, request.error(), responder);
  return [&context, responder, request = std::move(*request)]() mutable {
    auto make_body = [with_texts = request.with_texts](const registry::ReadyModel& model,
                                                       const Prompts& prompts) {
      return tokens_body(model, prompts[0], with_texts);
    };
    answer_prompts(context.generation, std::move(request.generation), responder,
                   std::move(make_body), openai_error);
  };
}

Then openai_detokenize(ServerContext& context, HttpRequest& http, const ResponderPtr& responder) {
  const auto root = parse_json_object(http.body, "body", NonFinite::kRefused);
  if (!root) return refusal(context, root.error(), responder);
  JsonFields fields(*root);
  GenerationRequest request;
  if (const std::string* model = fields.text("model")) request.model = *model;
  if (fields.find("tokens") == nullptr) fields.fail("tokens", "is missing");
  Prompts tokens = {fields.ids("tokens", std::numeric_limits<std::size_t>::max())};
  if (fields.failed()) return refusal(context, fields.error(), responder);
  request.num_bytes = tokens[0].size() * sizeof(TokenId);
  request.make_prompts =
      [tokens = std::move(tokens)](const registry::ReadyModel& model) -> Result<Prompts> {
    for (const TokenId id : tokens[0]) {
      if (id < model.limits.vocab_size) continue;
      return Error{ErrorCode::kInvalid,
                   "tokens: " + beyond_vocabulary(id, model.limits.vocab_size)};
    }
    return tokens;
  };
  return [&context, responder, request = std::move(request)]() mutable {
    auto make_body = [](const registry::ReadyModel& model, const Prompts& prompts) {
      std::string out;
      JsonWriter(out).begin_object().field("prompt", (*model.tokenizer)->decode(prompts[0]));
      return out + "}\n";
    };
    answer_prompts(context.generation, std::move(request), responder, make_body, openai_error);
  };
}

}  // namespace lmtp::server
