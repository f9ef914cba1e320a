// `truncation: auto` of /v1/responses: the oldest items are left out until the prompt fits.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "generation/chat_prompt.h"
#include "lmtp/base/json.h"

namespace lmtp::server {

// Which items are left out together, the oldest first: an exchange, which is a user's message and
// what follows it; after the last user's message a turn of the assistant with the outputs of its
// calls. Never the last user's message, what comes last, or a message of the system or a developer.
std::vector<std::vector<std::size_t>> droppable_items(const OrderedJson& items);

struct TruncatedInput {
  std::string instructions = {};
  std::string items = {};  // JSON, which messages_of_items() takes
  int num_new = 0;         // tokens for which there is to be room; 0: for a usual answer
};

// As set_prompt(), of a prompt that has all of the items.
void set_truncated_prompt(ChatPrompt prompt, TruncatedInput input, GenerationRequest& generation);

}  // namespace lmtp::server
