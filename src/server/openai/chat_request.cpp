#include <algorithm>
#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common_fields.h"
#include "generation/json_fields.h"
#include "generation/read_tools.h"
#include "generation/reply_plan.h"
#include "generation/vendor_tools.h"
#include "lmtp/base/json.h"
#include "lmtp/request/chat.h"
#include "lmtp/request/error_text.h"
#include "lmtp/text/chat_template.h"
#include "request.h"

namespace lmtp::server {
namespace {

struct ChatInput {
  Chat chat;
  // Where the last message is to be continued, what its text ends with in chat, which is no part of
  // it; else empty.
  std::string mark;
  std::shared_ptr<std::string> rendered;  // where its text goes; null: nowhere
  std::shared_ptr<ReplyPlan> plan;        // where it goes; null: nobody replies
  ReplyWishes wishes;
};

Error about_messages(Error error) {
  // The model is there; it has no template.
  if (error.code == ErrorCode::kNotFound) error.code = ErrorCode::kInvalid;
  return with_field_name("messages", std::move(error));
}

// The text of the last message, or of the last part of it that is one; null: it has none.
template <typename Messages>
auto text_of_last(Messages& messages) -> decltype(&messages.back()) {
  if (!messages.is_array() || messages.empty() || !messages.back().is_object()) return nullptr;
  const auto content = messages.back().find("content");
  if (content == messages.back().end()) return nullptr;
  if (content->is_string()) return &*content;
  if (!content->is_array()) return nullptr;
  for (auto part = content->rbegin(); part != content->rend(); ++part) {
    if (!part->is_object()) continue;
    const auto text = part->find("text");
    if (text != part->end() && text->is_string()) return &*text;
  }
  return nullptr;
}

// Its last byte shows whether the template trims the message.
std::string mark_beside(const std::string& messages) {
  std::string mark = "CONTINUE_FINAL_MESSAGE_TAG ";
  while (messages.find(mark.substr(0, mark.size() - 1)) != std::string::npos) mark.insert(0, "_");
  return mark;
}

// As transformers' continue_final_message from 4.57 on: the text ends where its mark stands, and
// before white space where the template trims the message.
Result<void> cut_at(const std::string& mark, text::RenderedChat& rendered) {
  std::size_t at = rendered.text.rfind(mark.substr(0, mark.size() - 1));
  if (at == std::string::npos) {
    return Error{ErrorCode::kInvalid,
                 "continue_final_message: the model's chat template leaves the last message out"};
  }
  const bool is_trimmed = rendered.text.compare(at, mark.size(), mark) != 0;
  constexpr std::string_view kSpaces = " \t\n\r\v\f";
  if (is_trimmed && at > 0) at = rendered.text.find_last_not_of(kSpaces, at - 1) + 1;
  rendered.text.resize(at);
  auto& plain = rendered.plain;
  while (!plain.empty() && plain.back().begin >= rendered.text.size()) plain.pop_back();
  if (!plain.empty()) plain.back().end = std::min(plain.back().end, rendered.text.size());
  return {};
}

Result<Prompts> render_prompt(const ChatInput& input, const registry::ReadyModel& model) {
  if (!model.chat_template) return about_messages(model.chat_template.error());
  const text::ChatTemplate& chat_template = **model.chat_template;
  auto rendered = chat_template.render(input.chat);
  if (!rendered) return about_messages(rendered.error());
  if (!input.mark.empty()) {
    if (auto cut = cut_at(input.mark, *rendered); !cut) return cut.error();
  }
  auto ids = chat_template.encode(*rendered);
  if (!ids) return about_messages(ids.error());
  if (input.plan != nullptr) {
    auto plan = plan_reply(model, rendered->text, input.wishes);
    if (!plan) return plan.error();
    *input.plan = *std::move(plan);
  }
  if (input.rendered != nullptr) *input.rendered = std::move(rendered->text);
  return Prompts{std::move(*ids)};
}

void refuse_chat_fields(JsonFields& fields) {
  for (const std::string_view field :
       {"functions", "audio", "web_search_options", "chat_template"}) {
    const Json* value = fields.find(field);
    if (value != nullptr && !is_empty_json(*value)) {
      fields.fail(field, "is not supported; leave it out");
    }
  }
  const Json* call = fields.given("function_call");  // without functions there is none
  if (call != nullptr && *call != "none" && *call != "auto") {
    fields.fail("function_call", "is not supported; leave it out");
  }
  const Json* modalities = fields.given("modalities");
  if (modalities != nullptr && *modalities != Json::array({"text"})) {
    fields.fail("modalities", "allowed is [\"text\"]");
  }
}

// As the client wrote it: templates show the order of keys and the digits of numbers to the model.
std::string json_of(const JsonFields& fields, const std::string& body, std::string_view key) {
  const Json* value = fields.find(key);
  return value == nullptr || is_empty_json(*value) ? std::string() : json_member(body, key);
}

// OpenAI's field is what templates read by that name, unless chat_template_kwargs have it.
void add_effort(JsonFields& fields, const Json* kwargs, std::string& template_kwargs) {
  const std::string* effort = fields.text("reasoning_effort");
  if (effort == nullptr || fields.failed()) return;
  std::string members;
  const auto add = [&](std::string_view name, const Json& value) {
    if (kwargs != nullptr && kwargs->contains(name)) return;
    members += (members.empty() ? "" : ", ") + Json(name).dump() + ": " + value.dump();
  };
  add("reasoning_effort", *effort);
  if (*effort == "none") add("enable_thinking", false);
  if (members.empty()) return;
  if (template_kwargs.empty()) {
    template_kwargs = "{" + members + "}";
  } else {
    template_kwargs.insert(template_kwargs.find('{') + 1, members + ", ");
  }
}

// Templates read reasoning by one of these names.
constexpr const char* kReasoningNames[] = {"reasoning_content", "reasoning", "thinking", "thought"};

// What the message has of it; null: nothing.
template <typename Message>
const Message* reasoning_in(const Message& message) {
  if (!message.is_object()) return nullptr;
  for (const char* name : kReasoningNames) {
    const auto found = message.find(name);
    if (found != message.end() && found->is_string()) return &*found;
  }
  return nullptr;
}

// Under all of the names.
void keep_reasoning(const Json& messages, std::string& text) {
  if (std::ranges::none_of(messages, [](const Json& message) { return reasoning_in(message); })) {
    return;
  }
  auto ordered = parse_ordered_json(text, "messages");
  if (!ordered) return;
  for (OrderedJson& message : *ordered) {
    const OrderedJson* const found = reasoning_in(message);
    if (found == nullptr) continue;
    const OrderedJson reasoning = *found;
    // Harmony's template refuses a call that has both.
    const bool is_with_text = message.contains("tool_calls") && message.contains("content") &&
                              !is_empty_json(message["content"]);
    for (const std::string_view name : kReasoningNames) {
      if (name == "thinking" && is_with_text) continue;
      OrderedJson& member = message[name];
      if (member.is_null()) member = reasoning;
    }
  }
  text = ordered->dump();
}

ChatInput read_chat_input(JsonFields& fields, const std::string& body) {
  ChatInput input;
  const Json* messages = fields.find("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    fields.fail("messages", (messages == nullptr ? "is missing" : seen(*messages)) +
                                std::string("; allowed is an array of at least one message"));
    return input;
  }
  const Json* kwargs = fields.given("chat_template_kwargs");
  if (kwargs != nullptr && !kwargs->is_object()) {
    fields.fail("chat_template_kwargs", seen(*kwargs) + "; allowed is an object");
  }
  input.chat.messages = json_of(fields, body, "messages");
  input.chat.tools = json_of(fields, body, "tools");
  input.chat.template_kwargs = json_of(fields, body, "chat_template_kwargs");
  add_effort(fields, kwargs, input.chat.template_kwargs);
  keep_reasoning(*messages, input.chat.messages);
  const bool continues = fields.boolean("continue_final_message", false);
  input.chat.add_generation_prompt = fields.boolean("add_generation_prompt", true);
  if (!continues) return input;
  if (input.chat.add_generation_prompt) {
    fields.fail("continue_final_message", "is allowed where add_generation_prompt is false");
  }
  auto marked = parse_ordered_json(input.chat.messages, "messages");
  OrderedJson* text = marked ? text_of_last(*marked) : nullptr;
  if (text == nullptr || is_empty_json(*text)) {
    fields.fail("continue_final_message", "needs a last message with text");
    return input;
  }
  input.wishes.begun = text->get<std::string>();
  input.mark = mark_beside(input.chat.messages);
  text->get_ref<std::string&>() += input.mark;
  input.chat.messages = marked->dump();
  return input;
}

// An empty array where there are none.
ClientTools client_tools(JsonFields& fields, const OrderedJson& body) {
  ClientTools none{OrderedJson::array(), {}};
  const Json* given = fields.given("tools");
  if (given == nullptr) return none;
  if (!given->is_array()) {
    fields.fail("tools", seen(*given) + "; allowed is an array");
    return none;
  }
  return without_vendor_tools(*body.find("tools"));
}

// What is asked of the reply, whose grammar moves there.
void read_wishes(JsonFields& fields, std::optional<OfferedTools> tools, OpenAiRequest& request,
                 ReplyWishes& wishes) {
  GenerationRequest& generation = request.generation;
  const bool is_forced = tools && tools->choice != OfferedTools::Choice::kAuto;
  // That is of the content, of which a forced call has none.
  if (is_forced && generation.grammar_field == "response_format") generation.grammar.reset();
  if (is_forced && generation.grammar) {
    fields.fail("tool_choice", "stands beside " + generation.grammar_field + "; one is allowed");
  }
  if (tools && !generation.grammar) generation.grammar_field = is_forced ? "tool_choice" : "tools";
  request.answer.call_is_chosen = tools && tools->choice == OfferedTools::Choice::kNamed;
  wishes.tools = std::move(tools);
  wishes.grammar = std::exchange(generation.grammar, std::nullopt);
  const auto budget = fields.whole("thinking_token_budget", 0, kAnyCount);
  if (budget) wishes.reasoning_tokens_max = static_cast<int>(*budget);
  wishes.min_tokens = generation.params.min_tokens;
  wishes.has_stop_strings = !generation.text.stop.empty();
}

void set_prompt(ChatInput input, GenerationRequest& generation) {
  generation.num_bytes = input.chat.num_bytes();
  generation.is_slow = true;
  generation.make_prompts = [input = std::move(input)](const registry::ReadyModel& model) {
    return render_prompt(input, model);
  };
}

}  // namespace

Result<OpenAiRequest> read_chat(const std::string& body, const ApiLimits& limits) {
  const auto root = parse_json_object(body, "body", NonFinite::kRefused);
  if (!root) return root.error();
  const auto ordered = parse_ordered_json(body, "body");
  if (!ordered) return ordered.error();
  JsonFields fields(*root);
  OpenAiRequest request;
  request.answer.is_chat = true;
  read_common(fields, body, limits, request);
  refuse_chat_fields(fields);
  const ClientTools offered = client_tools(fields, *ordered);
  auto tools = read_tools(fields, offered.kept, schema_reading(limits));
  request.answer.logprobs = fields.boolean("logprobs", false);
  const auto num_top = fields.whole("top_logprobs", 0, kMaxTopLogprobs);
  if (num_top.value_or(0) > 0 && !request.answer.logprobs) {
    fields.fail("top_logprobs", "needs logprobs");
  }
  request.answer.num_top = static_cast<int>(num_top.value_or(0));
  GenerationRequest& generation = request.generation;
  generation.params.top_logprobs = request.answer.num_top;
  const auto older_name = fields.whole(kMaxTokensName, 1, kAnyCount);
  const auto newer_name = fields.whole("max_completion_tokens", 1, kAnyCount);
  const auto max_tokens = newer_name ? newer_name : older_name;
  set_max_tokens(max_tokens, request);
  generation.to_context_end = !max_tokens;
  ChatInput input = read_chat_input(fields, body);
  if (!offered.left_out.empty()) {
    input.chat.tools = offered.kept.empty() ? std::string() : offered.kept.dump();
  }
  input.plan = generation.plan = std::make_shared<ReplyPlan>();
  read_wishes(fields, std::move(tools), request, input.wishes);
  request.answer.gives_reasoning = fields.boolean("include_reasoning", true);
  const bool echoes = fields.boolean("echo", false);
  generation.unknown_keys = fields.unknown_keys();
  if (fields.failed()) return fields.error();
  const Json& messages = *fields.find("messages");
  const std::string* role = find_json_text(messages.back(), "role");
  if (echoes && role != nullptr && *role == "assistant") {
    const OrderedJson* text = text_of_last(ordered->at("messages"));
    if (text != nullptr) request.answer.opening = text->get<std::string>();
  }
  set_prompt(std::move(input), generation);
  return request;
}

Result<GenerationRequest> read_chat_tokens(const Json& root, const std::string& body,
                                           std::shared_ptr<std::string> rendered) {
  JsonFields fields(root);
  GenerationRequest generation;
  ChatInput input = read_chat_input(fields, body);
  input.rendered = std::move(rendered);
  if (fields.failed()) return fields.error();
  set_prompt(std::move(input), generation);
  return generation;
}

}  // namespace lmtp::server
