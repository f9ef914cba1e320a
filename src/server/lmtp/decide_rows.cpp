#include "decide_rows.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "decisions/decide.h"
#include "decisions/plan.h"
#include "decisions/read_questions.h"
#include "generation/json_fields.h"
#include "lmtp/base/json.h"
#include "lmtp/base/json_writer.h"
#include "lmtp/request/error_text.h"

namespace lmtp::server {
namespace {

Result<OrderedJson> decide_member(const std::string& text, const std::string& field) {
  if (text.empty()) return OrderedJson();
  auto json = parse_ordered_json(text, field);
  if (!json) return with_field_name(field, json.error());
  return json;
}

bool is_text_part(const OrderedJson& part) {
  const auto text = part.is_object() ? part.find("text") : part.end();
  return part.is_object() && part.contains("type") && part["type"] == "text" &&
         text != part.end() && text->is_string();
}

// What a template would refuse as it does an order of roles, and the model would read as JSON.
Result<void> check_contents(const OrderedJson& messages) {
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const auto content = messages[i].find("content");
    if (content == messages[i].end() || content->is_null() || content->is_string()) continue;
    if (content->is_array() && std::ranges::all_of(*content, is_text_part)) continue;
    return Error{ErrorCode::kInvalid,
                 "messages[" + std::to_string(i) +
                     "].content: allowed are a string, null and a list of {\"type\": \"text\", "
                     "\"text\": TEXT}, no images"};
  }
  return {};
}

// Errors that name a question begin with the field's name as well.
Error about_questions(Error error) {
  if (!error.message.starts_with("question ")) return error;
  return with_field_name("questions", std::move(error));
}

Result<DecisionRequest> read_decide(const protocol::DecideMessage& message) {
  auto state = decide_member(message.state, "state");
  if (!state) return state.error();
  auto messages = decide_member(message.messages, "messages");
  if (!messages) return messages.error();
  if (auto texts = check_contents(*messages); !texts) return texts.error();
  const auto questions = decide_member(message.questions, "questions");
  if (!questions) return questions.error();
  OrderedJson options = {{"scoring", message.scoring}, {"diagnostics", message.diagnoses}};
  auto kwargs = decide_member(message.template_kwargs, "chat_template_kwargs");
  if (!kwargs) return kwargs.error();
  options["chat_template_kwargs"] = std::move(*kwargs);
  const Json unordered = options;
  JsonFields fields(unordered);
  DecisionRequest request;
  read_decision_options(fields, options, request);
  if (fields.failed()) return fields.error();
  auto read = read_questions(*questions);
  if (!read) return about_questions(read.error());
  request.questions = std::move(*read);
  request.state = std::move(*state);
  if (!messages->is_null()) request.state_name = "messages";
  request.messages = std::move(*messages);
  request.system = message.instructions;
  return request;
}

protocol::DecisionAnswer entry_of(const DecisionRequest& request, const DecisionPlan& plan,
                                  const std::vector<TypedAnswer>& answers) {
  protocol::DecisionAnswer answer{.num_prompt = plan.num_prompt_tokens(),
                                  .num_cached = plan.num_cached_tokens()};
  JsonWriter of_answers(answer.answers);
  write_systemone(request.questions, answers, of_answers);
  JsonWriter of_diagnostics(answer.diagnostics);
  write_all_diagnostics(request.questions, answers, of_diagnostics);
  return answer;
}

}  // namespace

Result<std::shared_ptr<StreamRows>> decide_rows(const protocol::DecideMessage& message,
                                                const registry::ReadyModel& model) {
  auto read = read_decide(message);
  if (!read) return read.error();
  const auto request = std::make_shared<const DecisionRequest>(std::move(*read));
  const auto plan = DecisionPlan::make(model, *request);
  if (!plan) return about_questions(plan.error());
  auto rows = std::make_shared<StreamRows>();
  rows->rows = *plan;
  rows->num_prompt = static_cast<int>((*plan)->num_prompt_tokens());
  rows->answer = [request, plan = *plan]() -> Result<protocol::TokenEntry> {
    const auto answers = plan->answers(request->questions);
    if (!answers) return answers.error();
    protocol::TokenEntry entry;
    entry.decision = entry_of(*request, *plan, *answers);
    return entry;
  };
  return rows;
}

}  // namespace lmtp::server
