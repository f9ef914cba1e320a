// The prompt of a chat, by its model's template, and what the chat asks of its reply: the half that
// all doors for chats have in common, whichever form their bodies have.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "generation.h"
#include "json_fields.h"
#include "lmtp/base/json.h"
#include "lmtp/request/chat.h"
#include "offered_tools.h"
#include "reply_plan.h"

namespace lmtp::server {

struct ChatPrompt {
  Chat chat = {};
  std::string field = "messages";  // that errors are about
  // Where the last message is to be continued, what its text ends with in chat, which is no part of
  // it; else empty.
  std::string mark = {};
  std::shared_ptr<std::string> rendered = nullptr;  // where its text goes; null: nowhere
  std::shared_ptr<ReplyPlan> plan = nullptr;        // where it goes; null: nobody replies
  ReplyWishes wishes = {};
};

// Has earlier reasoning under all the names by which templates read it. `text`: the JSON of
// `messages`, an array.
void keep_reasoning(const Json& messages, std::string& text);
void keep_reasoning(OrderedJson& messages);

// The text of the last message, or of the last part of it that is one; null: it has none.
const OrderedJson* last_text(const OrderedJson& messages);

// Has the last message continued: the prompt ends with its text. False: it has none.
bool continue_last(ChatPrompt& prompt);

// The body's chat_template_kwargs; an empty object where there are none.
OrderedJson read_template_kwargs(JsonFields& fields, const OrderedJson& body);

// Moves what is asked of the reply, the request's grammar among it, to `wishes`. `fields` get an
// error where a call is forced beside a grammar.
void take_wishes(JsonFields& fields, std::optional<OfferedTools> tools,
                 GenerationRequest& generation, ReplyWishes& wishes);

// Sets make_prompts, which renders it, and what belongs to that.
void set_prompt(ChatPrompt prompt, GenerationRequest& generation);

}  // namespace lmtp::server
