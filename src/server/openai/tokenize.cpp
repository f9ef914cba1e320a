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

}  // namespace

Then openai_tokenize(ServerContext& context, HttpRequest& http, const ResponderPtr& responder) {
  auto request = read_tokenize(http.body);
  if (!request) return openai_refusal(context, request.error(), responder);
  return [&context, responder, request = std::move(*request)]() mutable {
    auto make_body = [with_texts = request.with_texts](const registry::ReadyModel& model,
                                                       const Prompts& prompts) {
      return tokens_body(model, prompts[0], with_texts);
    };
    answer_prompts(context.generation, std::move(request.generation), responder,
                   std::move(make_body), openai_error);
  };
}

// As transformers' tokenizer_config.json, for clients that render or count by themselves. The class
// is the one that loads any of these files.
void openai_tokenizer_info(ServerContext& context, HttpRequest& /*http*/,
                           const ResponderPtr& responder) {
  GenerationRequest request;
  request.make_prompts = [](const registry::ReadyModel&) { return Prompts{{}}; };
  auto make_body = [](const registry::ReadyModel& model, const Prompts& /*prompts*/) {
    const tokenizer::Tokenizer& tokenizer = **model.tokenizer;
    const auto text_of = [&](TokenId id) {
      return id < 0 ? OrderedJson() : OrderedJson(std::string(tokenizer.token_bytes(id)));
    };
    const std::string chat =
        model.chat_template ? (*model.chat_template)->tools_template() : std::string();
    const OrderedJson info = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                              {"chat_template", chat},
                              {"vocab_size", tokenizer.vocab_size()},
                              {"model_max_length", model.limits.context_length},
                              {"add_bos_token", tokenizer.adds_bos()},
                              {"bos_token", text_of(tokenizer.bos_id())},
                              {"eos_token", text_of(tokenizer.eos_id())}};
    return json_text(info) + "\n";
  };
  answer_prompts(context.generation, std::move(request), responder, make_body, openai_error);
}

Then openai_detokenize(ServerContext& context, HttpRequest& http, const ResponderPtr& responder) {
  const auto root = parse_json_object(http.body, "body", NonFinite::kRefused);
  if (!root) return openai_refusal(context, root.error(), responder);
  JsonFields fields(*root);
  GenerationRequest request;
  if (const std::string* model = fields.text("model")) request.model = *model;
  if (fields.find("tokens") == nullptr) fields.fail("tokens", "is missing");
  Prompts tokens = {fields.ids("tokens", std::numeric_limits<std::size_t>::max())};
  if (fields.failed()) return openai_refusal(context, fields.error(), responder);
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
