// Messages and tools of Anthropic's API in the form that chat templates read, which is OpenAI's.
#pragma once

#include <nlohmann/json.hpp>

#include "lmtp/base/json.h"
#include "lmtp/base/result.h"

namespace lmtp::server {

// `system`: text or blocks of text; null: none. What clients mark for a cache is as any other. The
// error begins with the field's name.
Result<OrderedJson> chat_messages(const OrderedJson* system, const OrderedJson& messages);

// {"name", "description", "input_schema"} -> {"type": "function", "function": ...}, and so those
// that the client runs (client_tools.h). What is no such tool stays as it is.
OrderedJson chat_tool(const OrderedJson& tool);

}  // namespace lmtp::server
