#include "request.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "custom_tools.h"
#include "generation/chat_prompt.h"
#include "generation/fresh.h"
#include "generation/json_fields.h"
#include "generation/read_grammar.h"
#include "generation/read_tools.h"
#include "items.h"
#include "lmtp/base/text.h"
#include "openai/common_fields.h"
#include "truncation.h"

namespace lmtp::server {
namespace {

constexpr std::string_view kToolForm =
    "{\"type\": \"function\", \"name\": ..., \"parameters\": {...}} or {\"type\": \"custom\", "
    "\"name\": ..., \"format\": {...}}";
constexpr std::size_t kEchoedBytesMax = std::size_t{256} << 10;

// The body's value as it was sent, for the answer; null where it has none. One that is large is not
// repeated: a stream's first and last events have all of them.
void echo_field(JsonFields& fields, const OrderedJson& body, std::string_view name,
                const OrderedJson& absent, OrderedJson& echoed) {
  const Json* const value = fields.find(name);
  const bool is_echoed = value != nullptr && value->dump().size() <= kEchoedBytesMax;
  echoed[name] = is_echoed ? *body.find(name) : absent;
}

// As OpenAI has it.
void check_metadata(JsonFields& fields) {
  constexpr std::size_t kPairsMax = 16;
  constexpr std::size_t kKeyBytesMax = 64;
  constexpr std::size_t kValueBytesMax = 512;
  const Json* const metadata = fields.given("metadata");
  if (metadata == nullptr) return;
  bool is_good = metadata->is_object() && metadata->size() <= kPairsMax;
  for (auto pair = metadata->begin(); is_good && pair != metadata->end(); ++pair) {
    is_good = pair.key().size() <= kKeyBytesMax && pair->is_string() &&
              pair->get_ref<const std::string&>().size() <= kValueBytesMax;
  }
  if (is_good) return;
  fields.fail(
      "metadata",
      "is no object of at most 16 strings of 512 bytes under names of 64, which is allowed");
}

void refuse_what_is_not_there(JsonFields& fields) {
  if (fields.boolean("background", false)) {
    fields.fail("background", "is not supported; leave it out, or stream");
  }
  for (const std::string_view field : {"conversation", "prompt"}) {
    const Json* const value = fields.given(field);
    if (value != nullptr && !is_empty_json(*value)) {
      fields.fail(field,
                  "is not supported: nothing is kept on disk; send input, or "
                  "previous_response_id");
    }
  }
  const std::string* const truncation = fields.text("truncation");
  if (truncation != nullptr && *truncation != "auto" && *truncation != "disabled") {
    fields.fail("truncation", "is unknown; allowed are \"auto\" and \"disabled\"");
  }
}

// Reasoning is there always, and there are no vendors' tools, whose results could be included.
void read_logprobs(JsonFields& fields, ResponseRequest& request) {
  constexpr std::int64_t kTopMax = 20;  // as OpenAI has it
  const auto num_top = fields.whole("top_logprobs", 0, kTopMax);
  const Json* const include = fields.given("include");
  bool has_them = num_top.value_or(0) > 0;
  if (include != nullptr) {
    if (!include->is_array() || !std::ranges::all_of(*include, &Json::is_string)) {
      return fields.fail("include", "is no array of strings, which is allowed");
    }
    has_them = has_them || std::ranges::count(*include, "message.output_text.logprobs") > 0;
  }
  if (!has_them) return;
  request.num_top_logprobs = static_cast<int>(num_top.value_or(0));
  request.generation.params.top_logprobs = *request.num_top_logprobs;
}

// What changes nothing here and is of its type all the same.
void check_types(JsonFields& fields) {
  for (const std::string_view field : {"stream_options", "text", "reasoning"}) {
    const Json* const value = fields.given(field);
    if (value != nullptr && !value->is_object()) {
      fields.fail(field, seen(*value) + "; allowed is an object");
    }
  }
  for (const std::string_view field :
       {"user", "prompt_cache_key", "safety_identifier", "service_tier"}) {
    fields.text(field);
  }
  fields.whole("max_tool_calls", 0, kAnyCount);  // of vendors' tools
}

std::optional<OfferedTools> read_response_tools(JsonFields& fields, const OrderedJson& tools,
                                                SchemaReading reading) {
  const Json* const given = fields.given("tool_choice");
  const bool calls_several = fields.boolean("parallel_tool_calls", true);
  if (given == nullptr) return read_tools(fields, tools, {nullptr, calls_several}, reading);
  const std::string* const type = find_json_text(*given, "type");
  const std::string* const name = find_json_text(*given, "name");
  Json choice = *given;
  if (type != nullptr && (*type == "function" || *type == "custom") && name != nullptr) {
    choice = {{"type", "function"}, {"function", {{"name", *name}}}};
  }
  return read_tools(fields, tools, {&choice, calls_several}, reading);
}

// `text`: {"format": ...}; nothing of it where a call is forced, which has no text.
void read_text_format(JsonFields& fields, const OrderedJson& body, bool has_text,
                      SchemaReading reading, GenerationRequest& generation) {
  const Json* const text = fields.given("text");
  const Json* const format = text == nullptr ? nullptr : find_json(*text, "format");
  const Json* const verbosity = text == nullptr ? nullptr : find_json(*text, "verbosity");
  if (verbosity != nullptr && !verbosity->is_string()) {
    fields.fail("text.verbosity: " + seen(*verbosity) + "; allowed is a string");
  }
  if (format == nullptr || !has_text) return;
  const std::string* const type = find_json_text(*format, "type");
  if (type != nullptr && *type == "text") return;
  OrderedJson typed = {{"type", "json_object"}};
  if (type != nullptr && *type == "json_schema" && find_json(*format, "schema") != nullptr) {
    typed = {{"type", "json_schema"}, {"value", *body.find("text")->find("format")}};
  } else if (type == nullptr || *type != "json_object") {
    return fields.fail(
        "text.format: is unknown; allowed are {\"type\": \"text\"}, {\"type\": "
        "\"json_object\"} and {\"type\": \"json_schema\", \"name\": ..., "
        "\"schema\": {...}}");
  }
  auto grammar = read_typed_grammar(typed, reading);
  if (!grammar) return fields.fail("text.format: " + grammar.error().message);
  set_grammar("text", std::move(*grammar), fields, generation);
}

// What templates read of {"effort"}, unless chat_template_kwargs have it.
OrderedJson read_reasoning(JsonFields& fields, const OrderedJson& body) {
  OrderedJson kwargs = read_template_kwargs(fields, body);
  const Json* const reasoning = fields.given("reasoning");
  if (reasoning == nullptr) return kwargs;
  for (const std::string_view name : {"effort", "summary", "generate_summary"}) {
    const Json* const value = find_json(*reasoning, name);
    if (value == nullptr || value->is_string()) continue;
    fields.fail("reasoning." + std::string(name) + ": " + seen(*value) + "; allowed is a string");
  }
  const std::string* const effort = find_json_text(*reasoning, "effort");
  if (effort == nullptr) return kwargs;
  kwargs.emplace("reasoning_effort", *effort);
  if (*effort == "none") kwargs.emplace("enable_thinking", false);
  return kwargs;
}

// The items of the request, after those of the responses before it.
Result<OrderedJson> read_items(JsonFields& fields, const OrderedJson& body,
                               const FindResponse& find) {
  OrderedJson items = OrderedJson::array();
  const Json* const input = fields.find("input");
  if (const std::string* const id = fields.text("previous_response_id"); id != nullptr) {
    const auto previous = find(*id);
    if (previous == nullptr) {
      return Error{ErrorCode::kNotFound,
                   "Previous response with id '" + shortened(*id, 64) + "' not found."};
    }
    for (const std::string* const part : {&previous->input, &previous->output}) {
      auto parsed = parse_ordered_json(*part, "previous_response_id");
      if (!parsed) return parsed.error();
      for (OrderedJson& item : *parsed) items.push_back(std::move(item));
    }
  }
  if (input == nullptr) {
    return Error{ErrorCode::kInvalid, "input: is missing; a string or an array of items is needed"};
  }
  const std::string prefix = fresh_id("item_") + "_";
  auto own = input_items(*body.find("input"), prefix);
  if (!own) return own;
  for (OrderedJson& item : *own) items.push_back(std::move(item));
  make_ids_unique(prefix, items);
  if (items.empty()) {
    return Error{ErrorCode::kInvalid, "input: is empty; at least one item is needed"};
  }
  return items;
}

void read_echoed(JsonFields& fields, const OrderedJson& body, OrderedJson& echoed) {
  for (const std::string_view name :
       {"instructions", "max_output_tokens", "previous_response_id"}) {
    echo_field(fields, body, name, nullptr, echoed);
  }
  echo_field(fields, body, "metadata", OrderedJson::object(), echoed);
  echo_field(fields, body, "parallel_tool_calls", true, echoed);
  echo_field(fields, body, "reasoning", {{"effort", nullptr}, {"summary", nullptr}}, echoed);
  echo_field(fields, body, "store", true, echoed);
  echo_field(fields, body, "temperature", 1.0, echoed);
  echo_field(fields, body, "text", {{"format", {{"type", "text"}}}}, echoed);
  echo_field(fields, body, "tool_choice", "auto", echoed);
  echo_field(fields, body, "tools", OrderedJson::array(), echoed);
  echo_field(fields, body, "top_logprobs", 0, echoed);
  echo_field(fields, body, "top_p", 1.0, echoed);
  echo_field(fields, body, "truncation", "disabled", echoed);
}

}  // namespace

Result<ResponseRequest> read_response_request(const std::string& body, const ApiLimits& limits,
                                              const FindResponse& find) {
  const auto root = parse_json_object(body, "body", NonFinite::kRefused);
  if (!root) return root.error();
  const auto ordered = parse_ordered_json(body, "body");
  if (!ordered) return ordered.error();
  JsonFields fields(*root);
  ResponseRequest request;
  GenerationRequest& generation = request.generation;
  if (const std::string* model = fields.text("model")) generation.model = *model;
  request.streams = fields.boolean("stream", false);
  request.is_stored = fields.boolean("store", true);
  const auto max_tokens = fields.whole("max_output_tokens", 1, kAnyCount);
  if (max_tokens) request.max_tokens = static_cast<int>(*max_tokens);
  read_sampling(fields, generation);
  refuse_what_is_not_there(fields);
  check_types(fields);
  read_logprobs(fields, request);
  check_metadata(fields);
  read_echoed(fields, *ordered, request.echoed);
  auto items = read_items(fields, *ordered, find);
  const SchemaReading reading = schema_reading(limits);
  const OrderedJson tools = read_tool_list(fields, *ordered, chat_function, kToolForm);
  auto offered = read_response_tools(fields, tools, reading);
  if (ordered->contains("tools")) {
    request.custom_tools =
        read_custom_tools(fields, ordered->at("tools"), offered ? &*offered : nullptr);
  }
  OrderedJson kwargs = read_reasoning(fields, *ordered);
  read_text_format(fields, *ordered, !(offered && offered->is_forced()), reading, generation);
  ChatPrompt prompt;
  prompt.field = "input";
  take_wishes(fields, std::move(offered), generation, prompt.wishes);
  const auto budget = fields.whole("thinking_token_budget", 0, kAnyCount);
  if (budget) prompt.wishes.reasoning_tokens_max = static_cast<int>(*budget);
  const std::string* const instructions = fields.text("instructions");
  generation.unknown_keys = fields.unknown_keys();
  if (fields.failed()) return fields.error();
  if (!items) return items.error();
  const std::string system = instructions == nullptr ? "" : *instructions;
  auto messages = messages_of_items(system, *items);
  if (!messages) return messages.error();
  keep_reasoning(*messages);
  prompt.chat.messages = messages->dump();
  if (!tools.empty()) prompt.chat.tools = tools.dump();
  if (!kwargs.empty()) prompt.chat.template_kwargs = kwargs.dump();
  prompt.plan = std::make_shared<ReplyPlan>();
  const std::string* const truncation = fields.text("truncation");
  const bool truncates = truncation != nullptr && *truncation == "auto";
  std::string text = request.is_stored || truncates ? items->dump() : std::string();
  if (truncates) {
    set_truncated_prompt(std::move(prompt), {system, text, request.max_tokens.value_or(0)},
                         generation);
  } else {
    set_prompt(std::move(prompt), generation);
  }
  if (request.is_stored) request.input = std::move(text);
  generation.num_bytes += request.input.size();
  return request;
}

}  // namespace lmtp::server
