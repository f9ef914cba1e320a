// The tools of a chat, and which of them its reply calls.
#pragma once

#include <optional>

#include "json_fields.h"
#include "lmtp/base/json.h"
#include "offered_tools.h"
#include "read_grammar.h"

namespace lmtp::server {

// The tools of a body, without those that only their vendor runs, each as `convert` makes it one of
// OpenAI's chats; an empty array where there are none.
OrderedJson read_tool_list(JsonFields& fields, const OrderedJson& body,
                           OrderedJson (*convert)(const OrderedJson&));

// `tool_choice` and `parallel_tool_calls` of a chat with these tools, an array; nothing: what the
// model writes is text.
std::optional<OfferedTools> read_tools(JsonFields& fields, const OrderedJson& tools,
                                       SchemaReading reading);

// The same where the body has these in another form: `choice` in the values of `tool_choice`, null:
// there is none.
struct ToolChoice {
  const Json* choice = nullptr;
  bool calls_several = true;
};
std::optional<OfferedTools> read_tools(JsonFields& fields, const OrderedJson& tools,
                                       ToolChoice given, SchemaReading reading);

}  // namespace lmtp::server
