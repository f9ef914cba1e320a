#include "prompts_answer.h"

#include <utility>

namespace lmtp::server {
namespace {

// Owned by the generation, which computes nothing.
class Answer : public GenerationListener {
 public:
  using MakeError = HttpResponse (*)(const Error&, bool);

  Answer(std::shared_ptr<HttpResponder> responder, std::shared_ptr<std::string> body,
         MakeError make_error)
      : responder_(std::move(responder)), body_(std::move(body)), make_error_(make_error) {}

  Result<void> on_prompts(const registry::ReadyModel& /*model*/, Prompts& /*prompts*/,
                          SamplingParams& /*params*/) override {
    return {};
  }
  void on_prompt_token(int /*prompt*/, TokenEvent /*event*/) override {}
  void on_reply(Reply /*reply*/) override {}
  void on_end() override { responder_->send({200, "application/json", std::move(*body_)}); }
  void on_error(const Error& error, bool no_model) override {
    responder_->send(make_error_(error, no_model));
  }

 private:
  const std::shared_ptr<HttpResponder> responder_;
  const std::shared_ptr<std::string> body_;
  const MakeError make_error_;
};

}  // namespace

void answer_prompts(const GenerationContext& context, GenerationRequest request,
                    const std::shared_ptr<HttpResponder>& responder, MakeBody make_body,
                    HttpResponse (*make_error)(const Error&, bool no_model)) {
  const auto body = std::make_shared<std::string>();
  request.generates = false;
  request.make_prompts = [body, make_prompts = std::move(request.make_prompts),
                          make_body = std::move(make_body)](const registry::ReadyModel& model) {
    auto prompts = make_prompts(model);
    if (prompts && model.tokenizer) *body = make_body(model, *prompts);
    return prompts;
  };
  generate(context, std::move(request), responder,
           std::make_shared<Answer>(responder, body, make_error));
}

}  // namespace lmtp::server
