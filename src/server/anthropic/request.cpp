#include "request.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "generation/chat_prompt.h"
#include "generation/json_fields.h"
#include "generation/read_grammar.h"
#include "generation/read_tools.h"
#include "lmtp/base/json.h"
#include "lmtp/protocol/message.h"
#include "messages.h"
#include "openai/common_fields.h"

namespace lmtp::server {
namespace {

constexpr std::string_view kMessageToolForm =
    R"({"name": ..., "description": ..., "input_schema": {...}})";

// What changes nothing here has its type all the same.
void check_ignored(JsonFields& fields) {
  for (const std::string_view field : {"metadata", "context_management", "cache_control"}) {
    const Json* const value = fields.given(field);
    if (value != nullptr && !value->is_object()) {
      fields.fail(field, seen(*value) + "; allowed is an object");
    }
  }
  for (const std::string_view field : {"service_tier", "inference_geo"}) fields.text(field);
}

// OpenAI's value of Anthropic's {"type", "name"}.
Json chat_choice(JsonFields& fields, const Json& given) {
  const std::string* const type = find_json_text(given, "type");
  const std::string* const name = find_json_text(given, "name");
  if (type != nullptr && *type == "tool" && name != nullptr) {
    return {{"type", "function"}, {"function", {{"name", *name}}}};
  }
  if (type != nullptr && *type == "any") return "required";
  if (type != nullptr && (*type == "auto" || *type == "none")) return *type;
  fields.fail("tool_choice",
              "is unknown; allowed are {\"type\": \"auto\"}, {\"type\": \"any\"}, {\"type\": "
              "\"none\"} and {\"type\": \"tool\", \"name\": ...}");
  return "none";
}

std::optional<OfferedTools> read_message_tools(JsonFields& fields, const OrderedJson& tools,
                                               SchemaReading reading) {
  const Json* const given = fields.given("tool_choice");
  if (given == nullptr) return read_tools(fields, tools, {}, reading);
  const Json choice = chat_choice(fields, *given);
  const Json* const parallel = find_json(*given, "disable_parallel_tool_use");
  if (parallel != nullptr && !parallel->is_boolean()) {
    fields.fail("tool_choice", "has disable_parallel_tool_use that " + seen(*parallel) +
                                   "; allowed are true and false");
  }
  const bool calls_one = parallel != nullptr && *parallel == true;
  return read_tools(fields, tools, {&choice, !calls_one}, reading);
}

// What templates read of it, unless chat_template_kwargs have it.
void read_thinking(JsonFields& fields, OrderedJson& kwargs, ReplyWishes& wishes) {
  const Json* const thinking = fields.given("thinking");
  if (thinking == nullptr) return;
  const std::string* const type = find_json_text(*thinking, "type");
  if (type == nullptr) return fields.fail("thinking", "is no object with a type");
  if (*type != "enabled" && *type != "disabled" && *type != "adaptive") {
    return fields.fail("thinking",
                       "has a type that is unknown; allowed are enabled, disabled and adaptive");
  }
  kwargs.emplace("enable_thinking", *type != "disabled");
  const Json* const budget = find_json(*thinking, "budget_tokens");
  if (budget == nullptr || *type != "enabled") return;
  const auto tokens = json_integer(*budget);
  if (!tokens || *tokens < 0 || *tokens > kAnyCount) {
    return fields.fail(
        "thinking", "has budget_tokens that " + seen(*budget) + "; allowed is a whole number >= 0");
  }
  wishes.reasoning_tokens_max = static_cast<int>(*tokens);
}

// `format`: {"type": "json_schema", "schema"}; nothing where a call is forced, which has no text.
void read_output_format(JsonFields& fields, std::string_view field, const OrderedJson& format,
                        SchemaReading reading, GenerationRequest& generation) {
  const auto type = format.find("type");
  const auto schema = format.find("schema");
  if (type == format.end() || *type != "json_schema" || schema == format.end()) {
    return fields.fail(field,
                       "has a format that is unknown; allowed is {\"type\": "
                       "\"json_schema\", \"schema\": {...}}");
  }
  auto grammar =
      read_typed_grammar({{"type", "json_schema"}, {"value", {{"schema", *schema}}}}, reading);
  if (!grammar) return fields.fail(field, grammar.error().message);
  set_grammar(field, std::move(*grammar), fields, generation);
}

void read_output(JsonFields& fields, const OrderedJson& body, bool has_content,
                 SchemaReading reading, OrderedJson& kwargs, GenerationRequest& generation) {
  for (const std::string_view field : {"output_config", "output_format"}) {
    const Json* const given = fields.given(field);
    if (given == nullptr) continue;
    if (!given->is_object()) {
      fields.fail(field, seen(*given) + "; allowed is an object");
      continue;
    }
    const OrderedJson& output = *body.find(field);
    if (field == "output_format") {
      if (has_content) read_output_format(fields, field, output, reading, generation);
      continue;
    }
    const Json* const given_effort = find_json(*given, "effort");
    if (given_effort != nullptr && !given_effort->is_string()) {
      fields.fail(field, "has an effort that " + seen(*given_effort) + "; allowed is a string");
    }
    const std::string* const effort = find_json_text(*given, "effort");
    if (effort != nullptr) {
      const bool is_more = *effort == "xhigh" || *effort == "max";  // than templates know
      kwargs.emplace("reasoning_effort", is_more ? "high" : *effort);
    }
    const Json* const format = find_json(*given, "format");
    if (format == nullptr || !has_content) continue;
    if (!format->is_object()) {
      fields.fail(field, "has a format that is no object");
      continue;
    }
    read_output_format(fields, field, *output.find("format"), reading, generation);
  }
}

void read_chat_messages(JsonFields& fields, const OrderedJson& body, ChatPrompt& prompt) {
  const Json* const messages = fields.find("messages");
  const Json* const system = fields.given("system");
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    return fields.fail("messages", (messages == nullptr ? "is missing" : seen(*messages)) +
                                       std::string("; allowed is an array of at least one"));
  }
  auto chat =
      chat_messages(system == nullptr ? nullptr : &*body.find("system"), *body.find("messages"));
  if (!chat) return fields.fail(chat.error().message);
  keep_reasoning(*chat);
  prompt.chat.messages = chat->dump();
  // An answer goes on with what is said already.
  if (chat->back()["role"] == "assistant" && !chat->back().contains("tool_calls")) {
    continue_last(prompt);
  }
}

}  // namespace

Result<MessagesRequest> read_messages(const std::string& body, const ApiLimits& limits,
                                      bool counts) {
  const auto root = parse_json_object(body, "body", NonFinite::kRefused);
  if (!root) return root.error();
  const auto ordered = parse_ordered_json(body, "body");
  if (!ordered) return ordered.error();
  JsonFields fields(*root);
  MessagesRequest request;
  GenerationRequest& generation = request.generation;
  if (const std::string* model = fields.text("model")) generation.model = *model;
  request.streams = fields.boolean("stream", false);
  const auto max_tokens = fields.whole("max_tokens", 1, kAnyCount);
  if (max_tokens) request.max_tokens = static_cast<int>(*max_tokens);
  if (!max_tokens && !counts) fields.fail("max_tokens", "is missing; a number is needed");
  read_sampling(fields, generation);
  generation.text.stop =
      fields.strings("stop_sequences", protocol::kMaxStops, protocol::kMaxStopBytes);
  const SchemaReading reading = schema_reading(limits);
  ChatPrompt prompt;
  read_chat_messages(fields, *ordered, prompt);
  const OrderedJson tools = read_tool_list(fields, *ordered, chat_tool, kMessageToolForm);
  auto offered = read_message_tools(fields, tools, reading);
  OrderedJson kwargs = read_template_kwargs(fields, *ordered);
  read_thinking(fields, kwargs, prompt.wishes);
  read_output(fields, *ordered, !(offered && offered->is_forced()), reading, kwargs, generation);
  if (generation.grammar && !prompt.mark.empty()) {
    fields.fail(generation.grammar_field,
                "holds the whole answer to a format, of which the last message has a part; allowed "
                "is a last message of the user's");
  }
  check_ignored(fields);
  take_wishes(fields, std::move(offered), generation, prompt.wishes);
  generation.unknown_keys = fields.unknown_keys();
  if (fields.failed()) return fields.error();
  if (!tools.empty()) prompt.chat.tools = tools.dump();
  if (!kwargs.empty()) prompt.chat.template_kwargs = kwargs.dump();
  if (!counts) prompt.plan = std::make_shared<ReplyPlan>();
  set_prompt(std::move(prompt), generation);
  return request;
}

}  // namespace lmtp::server
