// What a template makes of chats with calls, and the layout that this shows.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lmtp/text/call_writer.h"
#include "lmtp/text/chat_template.h"
#include "lmtp/text/reply_layout.h"

namespace lmtp::text {

// The calls of the probe; `count`: 1 or 2. The first has a string and a number, the second a
// boolean.
std::vector<WrittenCall> probe_call_list(std::size_t count);

// What follows the user's message in each of these chats. Empty: the template refuses it, or does
// not write its calls.
struct CallProbe {
  std::string before_answer;  // an assistant's plain answer: what stands before it
  std::string after_answer;   // and after it
  std::string one_call;
  std::string two_calls;
};

// Renders at most 9 chats, each of them bounded as any.
CallProbe probe_calls(const ChatTemplate& chat_template);

// Whether the template writes the calls as one of these does, or writes none.
bool agrees(const CallProbe& probe, const std::vector<CallLayout>& layouts);

// Nullopt: none that is certain, which is one that agrees and whose opening no plain text has.
std::optional<CallLayout> derive_layout(const CallProbe& probe);

// For a template that writes an assistant's reasoning between a pair of tags, <x> and </x>. Renders
// a chat.
std::optional<ReasoningLayout> probe_reasoning(const ChatTemplate& chat_template);

}  // namespace lmtp::text
