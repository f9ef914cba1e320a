// Tools that a chat must call: a grammar keeps the text to a call, which its format reads out of it
// again.
#pragma once

#include "generation/json_fields.h"
#include "generation/read_grammar.h"
#include "lmtp/base/json.h"

namespace lmtp::server {

struct OpenAiRequest;

// `tools` and `tool_choice` of a chat: the request gets the grammar and the format.
void read_tool_calls(JsonFields& fields, const OrderedJson& body, SchemaReading reading,
                     OpenAiRequest& request);

}  // namespace lmtp::server
