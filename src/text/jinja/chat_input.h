// What a client sends for a chat, as the values that a template reads.
#pragma once

#include <jinja/value.h>

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace lmtp::text {

using ChatJson = nlohmann::ordered_json;

// The messages are not what any template reads. The text says which, and what is allowed.
struct BadMessages : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// What a template can do with a message (jinja::caps).
struct MessageForms {
  bool text_content = true;      // a message's content as a string
  bool listed_content = false;   // as a list of parts
  bool object_arguments = true;  // a tool call's arguments as an object
};

// Puts messages into the form that the template reads: content as a string or as a list of parts
// of text, a tool call's arguments, which OpenAI's clients send as JSON text, as an object. Throws
// BadMessages.
void fit_messages(ChatJson& messages, const MessageForms& forms);

// Behind the first character of each special token that a client's text spells there is this
// character (which Unicode leaves to programs), so that what a template makes of it can be told
// from the special tokens of the template itself.
inline constexpr std::string_view kCutMark = "\xEF\xB7\x90";  // U+FDD0

// Marks them in all strings and keys; whether there were any.
bool mark_special_tokens(ChatJson& json, const std::vector<std::string>& special_tokens);

// Strings are marked as input, but for the roles that templates know, which some put together with
// "<|" and "|>" to a special token.
jinja::value value_of(const ChatJson& json, bool is_input);

}  // namespace lmtp::text
