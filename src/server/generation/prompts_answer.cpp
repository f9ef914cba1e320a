#include "prompts_answer.h"

#include <utility>

#include "read_body.h"

namespace lmtp::server {
namespace {

// Owned by the generation.
class Answer : public GenerationListener, public std::enable_shared_from_this<Answer> {
 public:
  using MakeError = HttpResponse (*)(const Error&, bool);

  Answer(const GenerationContext& context, std::string model,
         std::shared_ptr<HttpResponder> responder, BodyAtEnd make_body, BytesAtEnd num_bytes,
         MakeError make_error)
      : encoder_(context.encoder),
        models_(context.models.of(responder->caller())),
        model_(std::move(model)),
        responder_(std::move(responder)),
        make_body_(std::move(make_body)),
        num_bytes_(std::move(num_bytes)),
        make_error_(make_error) {}

  Result<void> on_prompts(const registry::ReadyModel& model, Prompts& /*prompts*/,
                          SamplingParams& /*params*/) override {
    model_ = answered_name(models_, model_, model.name);
    return {};
  }
  void on_prompt_token(int /*prompt*/, TokenEvent /*event*/) override {}
  void on_reply(Reply /*reply*/) override {}
  void on_end() override {
    const auto self = shared_from_this();
    make_answer(
        encoder_, num_bytes_ ? num_bytes_() : 0, responder_,
        [self] { return self->make_body_(self->model_); },
        [self](Result<std::string> body) { self->send(std::move(body)); });
  }
  void on_error(const Error& error, bool no_model) override {
    responder_->send(make_error_(error, no_model));
  }

 private:
  void send(Result<std::string> body) {
    if (!body) return on_error(body.error(), false);
    responder_->send({200, "application/json", std::move(*body)});
  }

  Encoder& encoder_;
  const CallerModels models_;
  std::string model_;  // as the client named it; then as the answer does
  const std::shared_ptr<HttpResponder> responder_;
  const BodyAtEnd make_body_;
  const BytesAtEnd num_bytes_;
  const MakeError make_error_;
};

}  // namespace

void answer_at_end(const GenerationContext& context, GenerationRequest request,
                   const std::shared_ptr<HttpResponder>& responder, BodyAtEnd make_body,
                   HttpResponse (*make_error)(const Error&, bool no_model), BytesAtEnd num_bytes) {
  request.generates = false;
  auto answer = std::make_shared<Answer>(context, request.model, responder, std::move(make_body),
                                         std::move(num_bytes), make_error);
  generate(context, std::move(request), responder, std::move(answer));
}

void answer_prompts(const GenerationContext& context, GenerationRequest request,
                    const std::shared_ptr<HttpResponder>& responder, MakeBody make_body,
                    HttpResponse (*make_error)(const Error&, bool no_model)) {
  const auto body = std::make_shared<std::string>();
  request.make_prompts = [body, make_prompts = std::move(request.make_prompts),
                          make_body = std::move(make_body)](const registry::ReadyModel& model) {
    auto prompts = make_prompts(model);
    if (prompts && model.tokenizer) *body = make_body(model, *prompts);
    return prompts;
  };
  answer_at_end(
      context, std::move(request), responder,
      [body](const std::string& /*model*/) -> Result<std::string> { return std::move(*body); },
      make_error);
}

}  // namespace lmtp::server
