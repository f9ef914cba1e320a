// What a client sends for a chat, in the form that a template reads.
#pragma once

#include <stdexcept>
#include <string>

#include "interpreter.h"
#include "value.h"

namespace lmtp::text {

// The messages are not what any template reads. The text says which, and what is allowed.
struct BadMessages : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// What a template can do with a message.
struct MessageForms {
  bool text_content = true;       // a message's content as a string
  bool listed_content = false;    // as a list of parts
  bool no_content = false;        // content that is null, of a message with tool calls
  bool object_arguments = false;  // a tool call's arguments as an object
};

// Finds out by what the template makes of small chats.
MessageForms forms_of(const jinja::Body& body, const std::shared_ptr<jinja::Scope>& variables);

// Puts messages, whose texts a client wrote, into the form that the template reads: content as a
// string or as a list of parts of text, a tool call's arguments, which OpenAI's clients send as
// JSON text, as an object. Roles that templates know become the server's own, since some templates
// put them together with "<|" and "|>" to a special token. Throws BadMessages.
void fit_messages(const jinja::Value& messages, const MessageForms& forms);

}  // namespace lmtp::text
