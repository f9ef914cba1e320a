// The tools of a chat, and which of them its reply calls.
#pragma once

#include <optional>
#include <string_view>

#include "json_fields.h"
#include "lmtp/base/json.h"
#include "offered_tools.h"
#include "read_grammar.h"

namespace lmtp::server {

// The tools of a body, each as `convert` makes it one of OpenAI's chats, without those that only
// their vendor runs, which it leaves as they are; an empty array where there are none. `fields` get
// an error of one that is none: it tells its place among all that were sent, and `form`.
OrderedJson read_tool_list(JsonFields& fields, const OrderedJson& body,
                           OrderedJson (*convert)(const OrderedJson&), std::string_view form);

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
