#include "decide.h"

#include <utility>

#include "generation/prompts_answer.h"
#include "plan.h"

namespace lmtp::server {

void read_decision_options(JsonFields& fields, const OrderedJson& body, DecisionRequest& request) {
  if (const std::string* name = fields.text("scoring")) {
    const auto scoring = scoring_by_name(*name);
    if (!scoring) fields.fail("scoring", "allowed are " + std::string(kScoringNames));
    request.scoring = scoring.value_or(Scoring::kAuto);
  }
  request.diagnoses = fields.boolean("diagnostics", false);
  const Json* kwargs = fields.given("chat_template_kwargs");
  if (kwargs == nullptr) return;
  if (!kwargs->is_object()) {
    return fields.fail("chat_template_kwargs", seen(*kwargs) + "; allowed is an object");
  }
  if (kwargs->value("enable_thinking", Json(false)) != Json(false)) {
    return fields.fail("chat_template_kwargs.enable_thinking",
                       "allowed is false: an answer is read where the reply begins");
  }
  for (const char* const name : {"messages", "add_generation_prompt", "continue_final_message"}) {
    if (kwargs->contains(name)) {
      return fields.fail("chat_template_kwargs." + std::string(name),
                         "is not of a decision; allowed are what the template reads besides");
    }
  }
  request.template_kwargs = body["chat_template_kwargs"];
}

void decide(const GenerationContext& context, Result<DecisionRequest> request,
            const std::shared_ptr<HttpResponder>& responder, std::string (*write)(const Decided&),
            HttpResponse (*make_error)(const Error&, bool no_model)) {
  if (!request) {
    context.models.refusals().add(request.error().code);
    return responder->send(make_error(request.error(), false));
  }
  GenerationRequest generation;
  generation.model = request->model;
  generation.num_bytes = request->num_bytes;
  generation.cache_salt = request->cache_salt;
  generation.is_slow = true;
  generation.unknown_keys = std::move(request->unknown_keys);
  const auto asked = std::make_shared<const DecisionRequest>(std::move(*request));
  const auto plan = std::make_shared<std::shared_ptr<DecisionPlan>>();
  const auto rows = generation.score_rows = std::make_shared<std::shared_ptr<ScoreRows>>();
  generation.make_prompts = [asked, plan,
                             rows](const registry::ReadyModel& model) -> Result<Prompts> {
    auto made = DecisionPlan::make(model, *asked);
    if (!made) return made.error();
    *rows = *plan = std::move(*made);
    return Prompts();
  };
  auto make_body = [asked, plan, write](const std::string& model) -> Result<std::string> {
    auto answers = (*plan)->answers(asked->questions);
    if (!answers) return answers.error();
    return write({*asked, model, std::move(*answers), (*plan)->num_prompt_tokens(),
                  (*plan)->num_cached_tokens()});
  };
  answer_at_end(context, std::move(generation), responder, std::move(make_body), make_error);
}

}  // namespace lmtp::server
