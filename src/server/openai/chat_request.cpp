#include <algorithm>
#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common_fields.h"
#include "generation/chat_prompt.h"
#include "generation/json_fields.h"
#include "generation/read_tools.h"
#include "generation/reply_plan.h"
#include "generation/vendor_tools.h"
#include "lmtp/base/json.h"
#include "request.h"

namespace lmtp::server {
namespace {

void refuse_chat_fields(JsonFields& fields) {
  for (const std::string_view field :
       {"functions", "audio", "web_search_options", "chat_template", "suffix"}) {
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

ChatPrompt read_chat_input(JsonFields& fields, const std::string& body) {
  ChatPrompt input;
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
  if (!continue_last(input)) {
    fields.fail("continue_final_message", "needs a last message with text");
  }
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
  const bool is_forced = tools && tools->is_forced();
  // That is of the content, of which a forced call has none.
  if (is_forced && generation.grammar_field == "response_format") generation.grammar.reset();
  request.answer.call_is_chosen = tools && tools->choice == OfferedTools::Choice::kNamed;
  take_wishes(fields, std::move(tools), generation, wishes);
  const auto budget = fields.whole("thinking_token_budget", 0, kAnyCount);
  if (budget) wishes.reasoning_tokens_max = static_cast<int>(*budget);
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
  ChatPrompt input = read_chat_input(fields, body);
  if (!offered.left_out.empty()) {
    input.chat.tools = offered.kept.empty() ? std::string() : offered.kept.dump();
  }
  input.plan = std::make_shared<ReplyPlan>();
  read_wishes(fields, std::move(tools), request, input.wishes);
  request.answer.gives_reasoning = fields.boolean("include_reasoning", true);
  const bool echoes = fields.boolean("echo", false);
  generation.unknown_keys = fields.unknown_keys();
  if (fields.failed()) return fields.error();
  const Json& messages = *fields.find("messages");
  const std::string* role = find_json_text(messages.back(), "role");
  if (echoes && role != nullptr && *role == "assistant") {
    const OrderedJson* text = last_text(ordered->at("messages"));
    if (text != nullptr) request.answer.opening = text->get<std::string>();
  }
  set_prompt(std::move(input), generation);
  return request;
}

Result<GenerationRequest> read_chat_tokens(const Json& root, const std::string& body,
                                           std::shared_ptr<std::string> rendered) {
  JsonFields fields(root);
  GenerationRequest generation;
  ChatPrompt input = read_chat_input(fields, body);
  input.rendered = std::move(rendered);
  if (fields.failed()) return fields.error();
  set_prompt(std::move(input), generation);
  return generation;
}

}  // namespace lmtp::server
