// How a model writes calls and reasoning: found by its chat template.
#pragma once

#include <string>
#include <string_view>

#include "lmtp/text/chat_template.h"
#include "lmtp/text/reply_layout.h"

namespace lmtp::text {

// What --tool-call-format takes: "none", or the name of a format.
bool is_tool_call_format(std::string_view name);
std::string tool_call_format_names();  // "apertus, ..., hermes, ...", without "none"

// In this order: the format that `option` names (REQUIRES: is_tool_call_format, or empty: none is
// named), the template's response_template, the table of known formats, and what the template makes
// of a few chats with calls. Whatever the template does, this takes bounded time and gives a
// layout, in the worst case one without calls. Any thread; milliseconds.
ReplyLayout find_reply_layout(const LoadedChatTemplate& chat_template, std::string_view option);

}  // namespace lmtp::text
