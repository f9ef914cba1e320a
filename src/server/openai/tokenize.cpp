#include "tokenize.h"

#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "error.h"
#include "generation/json_fields.h"
#include "lmtp/base/json.h"
#include "lmtp/request/error_text.h"
#include "request.h"
#include "token_lists.h"

namespace lmtp::server {
namespace {

// Answers when the prompts are known; nothing is generated.
class Tokens : public GenerationListener {
 public:
  using MakeBody = std::function<Result<std::string>(const registry::ReadyModel&, const Prompts&)>;

  Tokens(std::shared_ptr<HttpResponder> responder, MakeBody make_body)
      : responder_(std::move(responder)), make_body_(std::move(make_body)) {}

  Result<void> on_prompts(const registry::ReadyModel& model, Prompts& prompts,
                          SamplingParams& /*params*/) override {
    auto body = make_body_(model, prompts);
    if (!body) return body.error();
    body_ = std::move(*body);
    return {};
  }
  void on_prompt_token(int /*prompt*/, TokenEvent /*event*/) override {}
  void on_token(GeneratedToken /*token*/) override {}
  void on_end() override { responder_->send({200, "application/json", std::move(body_)}); }
  void on_error(const Error& error, bool no_model) override {
    responder_->send(openai_error(error, no_model));
  }

 private:
  const std::shared_ptr<HttpResponder> responder_;
  const MakeBody make_body_;
  std::string body_;
};

std::string tokens_body(const registry::ReadyModel& model, const std::vector<TokenId>& ids,
                        bool with_texts) {
  std::string out = R"({"count": )" + std::to_string(ids.size()) + R"(, "max_model_len": )" +
                    std::to_string(model.limits.context_length) + R"(, "tokens": )" +
                    ids_json(ids) + R"(, "token_strs": )";
  if (!with_texts) return out + "null}\n";
  out += '[';
  for (const TokenId id : ids) {
    if (out.back() != '[') out += ", ";
    append_json_string((*model.tokenizer)->token_bytes(id), out);
  }
  return out + "]}\n";
}

void refuse(ServerContext& context, const Error& error, HttpResponder& responder) {
  context.generation.models.refusals().add(error.code);
  responder.send(openai_error(error));
}

}  // namespace

void answer_openai_tokenize(ServerContext& context, const std::string& body,
                            const std::shared_ptr<HttpResponder>& responder) {
  auto request = read_tokenize(body);
  if (!request) return refuse(context, request.error(), *responder);
  auto make_body = [with_texts = request->with_texts](const registry::ReadyModel& model,
                                                      const Prompts& prompts) {
    return Result<std::string>(tokens_body(model, prompts[0], with_texts));
  };
  generate(context.generation, std::move(request->generation), responder,
           std::make_shared<Tokens>(responder, std::move(make_body)));
}

void answer_openai_detokenize(ServerContext& context, const std::string& body,
                              const std::shared_ptr<HttpResponder>& responder) {
  const auto root = parse_json_object(body, "body");
  if (!root) return refuse(context, root.error(), *responder);
  JsonFields fields(*root);
  GenerationRequest request;
  if (const std::string* model = fields.text("model")) request.model = *model;
  if (fields.find("tokens") == nullptr) fields.fail("tokens", "is missing");
  std::vector<TokenId> ids = fields.ids("tokens", std::numeric_limits<std::size_t>::max());
  if (fields.failed()) return refuse(context, fields.error(), *responder);
  request.generates = false;
  request.num_bytes = ids.size() * sizeof(TokenId);
  const auto text = std::make_shared<std::string>();
  request.make_prompts = [ids = std::move(ids),
                          text](const registry::ReadyModel& model) -> Result<Prompts> {
    for (const TokenId id : ids) {
      if (id < model.limits.vocab_size) continue;
      return Error{ErrorCode::kInvalid,
                   "tokens: " + beyond_vocabulary(id, model.limits.vocab_size)};
    }
    if (model.tokenizer) *text = (*model.tokenizer)->decode(ids);
    return Prompts(1);
  };
  auto make_body = [text](const registry::ReadyModel&, const Prompts&) {
    std::string out = R"({"prompt": )";
    append_json_string(*text, out);
    return Result<std::string>(out + "}\n");
  };
  generate(context.generation, std::move(request), responder,
           std::make_shared<Tokens>(responder, std::move(make_body)));
}

}  // namespace lmtp::server
