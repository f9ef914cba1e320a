// Items and tools of /v1/responses in the form of /v1/chat/completions, which templates read.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lmtp/base/json.h"
#include "lmtp/base/result.h"

namespace lmtp::server {

// `input`: text, or items. As items, each with an id: its own, or `prefix` and its number.
Result<OrderedJson> input_items(const OrderedJson& input, const std::string& prefix);

// An id that an earlier item has is replaced, so that each names one.
void make_ids_unique(const std::string& prefix, OrderedJson& items);

// `instructions`: empty: none. The error begins with "input".
Result<OrderedJson> messages_of_items(const std::string& instructions, const OrderedJson& items);

// {"type": "function", "name", ...} -> {"type": "function", "function": ...}; custom tools are
// functions, too (custom_tools.h). What is neither stays as it is, for read_tools() to refuse.
OrderedJson chat_function(const OrderedJson& tool);

}  // namespace lmtp::server
