// OpenAI's POST /v1/decisions.
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "context.h"
#include "decisions/decide.h"
#include "decisions/read_questions.h"
#include "error.h"
#include "lmtp/base/json.h"
#include "lmtp/base/json_writer.h"
#include "lmtp/request/field_checks.h"
#include "routes.h"

namespace lmtp::server {
namespace {

constexpr std::size_t kItemsMax = 4096;  // of input
constexpr const char* kNoImages =
    "is an image; allowed are texts and JSON (input_text, input_json)";

std::string kind_of(const OrderedJson& object) {
  const auto type = object.is_object() ? object.find("type") : object.end();
  return object.is_object() && type != object.end() && type->is_string() ? type->get<std::string>()
                                                                         : std::string();
}

std::string member_text(const OrderedJson& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// A text, or texts and JSON one below the other; the error's text follows the place's name.
Result<std::string> content_of(const OrderedJson& content) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) {
    return Error{ErrorCode::kInvalid,
                 std::string(content.is_null() ? "is missing" : "is neither a text nor a list") +
                     "; allowed are a text and a list of parts"};
  }
  std::string text;
  for (const OrderedJson& part : content) {
    if (!text.empty()) text.push_back('\n');
    const std::string type = kind_of(part);
    const auto value =
        part.is_object() ? part.find(type == "refusal" ? "refusal" : "text") : part.end();
    if (type == "input_image") return Error{ErrorCode::kInvalid, kNoImages};
    if (type == "input_json" && part.contains("data") && part["data"].is_structured()) {
      text += content_text(part["data"]);
    } else if ((type == "input_text" || type == "output_text" || type == "refusal") &&
               value != part.end() && value->is_string()) {
      text += value->get<std::string>();
    } else {
      return Error{ErrorCode::kInvalid,
                   "has a part that is wrong; allowed are {\"type\": \"input_text\", \"text\": "
                   "\"...\"} and {\"type\": \"input_json\", \"data\": {...}}"};
    }
  }
  return text;
}

// What OpenAI's Responses call items, as messages that chat templates know.
class InputReader {
 public:
  Result<OrderedJson> messages(const OrderedJson& items) {
    if (items.empty() || items.size() > kItemsMax) {
      return Error{ErrorCode::kInvalid, "input: has " + std::to_string(items.size()) +
                                            " items; allowed are 1 to " +
                                            std::to_string(kItemsMax)};
    }
    for (std::size_t i = 0; i < items.size(); ++i) {
      auto added = add(items[i]);
      if (!added) {
        return Error{ErrorCode::kInvalid,
                     "input[" + std::to_string(i) + "]: " + added.error().message};
      }
    }
    return std::move(messages_);
  }

 private:
  Result<void> add(const OrderedJson& item) {
    const std::string type = kind_of(item);
    if (type == "function_call") return add_call(item, member_text(item, "arguments"));
    if (type == "custom_tool_call") {
      return add_call(item, OrderedJson{{"input", member_text(item, "input")}}.dump());
    }
    if (type == "function_call_output" || type == "custom_tool_call_output") {
      return add_output(item);
    }
    return add_message(item);
  }

  Result<void> add_message(const OrderedJson& item) {
    std::string role = item.is_object() ? member_text(item, "role") : std::string();
    if (role == "developer") role = "system";
    if (role != "user" && role != "system" && role != "assistant") {
      return Error{ErrorCode::kInvalid,
                   "needed is a message with the role user, assistant, system or developer, or a "
                   "call of a function or its output"};
    }
    auto content = content_of(item.contains("content") ? item["content"] : OrderedJson());
    if (!content) return Error{ErrorCode::kInvalid, "content " + content.error().message};
    messages_.push_back({{"role", role}, {"content", std::move(*content)}});
    return {};
  }

  // Calls that follow each other are of one message.
  Result<void> add_call(const OrderedJson& item, std::string arguments) {
    const std::string id = member_text(item, "call_id");
    const std::string name = member_text(item, "name");
    if (id.empty() || name.empty() || !calls_.insert(id).second) {
      return Error{ErrorCode::kInvalid, "needed are a name and a call_id that no other call has"};
    }
    const bool follows = !messages_.empty() && messages_.back().contains("tool_calls");
    if (!follows) {
      messages_.push_back(
          {{"role", "assistant"}, {"content", ""}, {"tool_calls", OrderedJson::array()}});
    }
    messages_.back()["tool_calls"].push_back(
        {{"id", id},
         {"type", "function"},
         {"function", {{"name", name}, {"arguments", std::move(arguments)}}}});
    return {};
  }

  Result<void> add_output(const OrderedJson& item) {
    const std::string id = member_text(item, "call_id");
    if (!calls_.contains(id)) {
      return Error{ErrorCode::kInvalid, "needed is the call_id of a call before it"};
    }
    auto content = content_of(item.contains("output") ? item["output"] : OrderedJson());
    if (!content) return Error{ErrorCode::kInvalid, "output " + content.error().message};
    messages_.push_back({{"role", "tool"}, {"tool_call_id", id}, {"content", std::move(*content)}});
    return {};
  }

  OrderedJson messages_ = OrderedJson::array();
  std::set<std::string> calls_;
};

// One of the choices or levels. `name`: the member that has it.
Result<AnswerOption> option_of(const OrderedJson& given, const char* name, bool takes_booleans) {
  const auto value = given.is_object() ? given.find(name) : given.end();
  const bool is_missing = !given.is_object() || value == given.end();
  AnswerOption option;
  if (!is_missing && value->is_boolean() && takes_booleans) {
    option.is_boolean = true;
    option.name = value->get<bool>() ? "true" : "false";
  } else if (!is_missing && value->is_string() && !value->get_ref<const std::string&>().empty()) {
    option.name = value->get<std::string>();
  } else {
    return Error{ErrorCode::kInvalid, "needed is " + std::string(name) +
                                          ", a text that is not empty" +
                                          (takes_booleans ? " or a boolean" : "")};
  }
  const auto description = given.find("description");
  if (description != given.end() && !description->is_null()) {
    if (!description->is_string()) {
      return Error{ErrorCode::kInvalid, "description: allowed is a text"};
    }
    option.description = *description;
  }
  return option;
}

Result<void> read_options(const OrderedJson& given, Question& question) {
  const bool is_choice = question.kind == QuestionKind::kChoice;
  const char* const key = is_choice ? "choices" : "levels";
  const auto list = given.find(key);
  const bool is_list = list != given.end() && list->is_array();
  if (!is_list || list->size() < 2 || list->size() > text::kOptionsMax) {
    return Error{ErrorCode::kInvalid, std::string(key) + ": needed is a list of 2 to " +
                                          std::to_string(text::kOptionsMax)};
  }
  std::set<std::pair<std::string, bool>> known;
  for (const OrderedJson& one : *list) {
    const std::string place =
        std::string(key) + "[" + std::to_string(question.options.size()) + "]";
    auto option = option_of(one, is_choice ? "value" : "label", is_choice);
    if (!option) return Error{ErrorCode::kInvalid, place + ": " + option.error().message};
    if (!known.emplace(option->name, option->is_boolean).second) {
      return Error{ErrorCode::kInvalid,
                   place + ": is equal to another one; needed are different ones"};
    }
    if (!is_choice) {
      const std::string described = content_text(option->description);
      option->description = option->name + (described.empty() ? "" : ": " + described);
    }
    question.options.push_back(std::move(*option));
  }
  return {};
}

Result<Question> question_of(const OrderedJson& given) {
  const std::string type = kind_of(given);
  Question question;
  if (type == "predicate") {
    question.options = {{"true", {}}, {"false", {}}};
  } else if (type == "choice") {
    question.kind = QuestionKind::kChoice;
  } else if (type == "score") {
    question.kind = QuestionKind::kScore;
  } else {
    return Error{ErrorCode::kInvalid, "type: allowed are predicate, choice and score"};
  }
  question.has_id = given.contains("name") && !given["name"].is_null();
  if (question.has_id) {
    if (!given["name"].is_string()) return Error{ErrorCode::kInvalid, "name: allowed is a text"};
    question.id = given["name"].get<std::string>();
  }
  auto instructions =
      content_of(given.contains("instructions") ? given["instructions"] : OrderedJson());
  if (!instructions) {
    return Error{ErrorCode::kInvalid, "instructions " + instructions.error().message};
  }
  question.instructions = std::move(*instructions);
  if (question.kind == QuestionKind::kPredicate) return question;
  if (auto read = read_options(given, question); !read) return read.error();
  return question;
}

Result<DecisionRequest> read_decision(const std::string& body) {
  const auto root = parse_json_object(body, "body", NonFinite::kRefused);
  if (!root) return root.error();
  const auto ordered = parse_ordered_json(body, "body");
  if (!ordered) return ordered.error();
  JsonFields fields(*root);
  DecisionRequest request;
  request.state_name = "input";
  request.num_bytes = body.size();
  if (const std::string* model = fields.text("model")) request.model = *model;
  read_decision_options(fields, *ordered, request);
  fields.find("prompt_cache_options");  // of caches that this server needs none of
  const Json* input = fields.find("input");
  const Json* questions = fields.find("questions");
  request.unknown_keys = fields.unknown_keys();
  if (input == nullptr || !(input->is_string() || input->is_array())) {
    fields.fail("input", (input == nullptr ? "is missing" : seen(*input)) +
                             std::string("; allowed are a text and a list of messages"));
  }
  if (questions == nullptr || !questions->is_array()) {
    fields.fail("questions", (questions == nullptr ? "is missing" : seen(*questions)) +
                                 std::string("; needed is a list of questions"));
  }
  if (fields.failed()) return fields.error();
  if (input->is_string()) {
    request.state = (*ordered)["input"];
  } else {
    auto messages = InputReader().messages((*ordered)["input"]);
    if (!messages) return messages.error();
    request.messages = std::move(*messages);
  }
  QuestionMistakes mistakes;
  for (const OrderedJson& given : (*ordered)["questions"]) {
    auto question = question_of(given);
    const std::string place = "questions[" + std::to_string(request.questions.size()) + "]";
    if (!question) mistakes.add(place, question.error().message);
    request.questions.push_back(question ? std::move(*question) : Question());
  }
  mistakes.check(request.questions);
  if (!mistakes.empty()) return mistakes.error();
  return request;
}

void write_value(const AnswerOption& option, JsonWriter& json) {
  if (option.is_boolean) {
    json.value(option.name == "true");
  } else {
    json.value(option.name);
  }
}

void write_typed_answer(const Question& question, const TypedAnswer& answer, JsonWriter& json) {
  constexpr const char* kTypes[] = {"predicate", "choice", "score"};
  json.begin_object().field("type", kTypes[static_cast<int>(question.kind)]);
  json.key("name");
  if (question.has_id) {
    json.value(question.id);
  } else {
    json.value(nullptr);
  }
  if (question.kind == QuestionKind::kPredicate) {
    json.field("probability", answer.score).end_object();
    return;
  }
  const bool is_choice = question.kind == QuestionKind::kChoice;
  if (is_choice) {
    json.key("choice");
    write_value(question.options[answer.best], json);
  } else {
    json.field("score", answer.score);
  }
  json.field("confidence", answer.confidence).key("probabilities").begin_array();
  for (std::size_t i = 0; i < question.options.size(); ++i) {
    const AnswerOption& option = question.options[i];
    json.begin_object();
    if (!is_choice) json.field("label", option.name);
    json.key("value");
    if (is_choice) {
      write_value(option, json);
    } else {
      json.value(i);
    }
    json.field("probability", answer.probabilities[i]).end_object();
  }
  json.end_array().end_object();
}

void write_usage(const Decided& decided, JsonWriter& json) {
  json.key("usage").begin_object().field("input_tokens", decided.num_prompt_tokens);
  json.key("input_tokens_details").begin_object();
  json.field("cached_tokens", decided.num_cached_tokens);
  json.field("cache_write_tokens", decided.num_prompt_tokens - decided.num_cached_tokens);
  json.end_object().field("output_tokens", 0);
  json.key("output_tokens_details").begin_object().field("reasoning_tokens", 0).end_object();
  json.field("total_tokens", decided.num_prompt_tokens).end_object();
}

std::string decision_body(const Decided& decided) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("model", decided.model).key("answers").begin_array();
  for (std::size_t i = 0; i < decided.answers.size(); ++i) {
    write_typed_answer(decided.request.questions[i], decided.answers[i], json);
  }
  json.end_array();
  write_usage(decided, json);
  if (decided.request.diagnoses) {
    json.key("diagnostics").begin_array();
    for (const TypedAnswer& answer : decided.answers) write_diagnostics(answer, json);
    json.end_array();
  }
  json.end_object();
  return out + "\n";
}

}  // namespace

Then openai_decisions(ServerContext& context, HttpRequest& http, const ResponderPtr& responder) {
  return [&context, responder, request = read_decision(http.body)]() mutable {
    decide(context.generation, std::move(request), responder, decision_body, openai_error);
  };
}

}  // namespace lmtp::server
