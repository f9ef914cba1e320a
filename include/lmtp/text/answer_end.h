// The tokens that end an answer to somebody who does not name them.
#pragma once

#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/text/chat_template.h"
#include "lmtp/tokenizer/tokenizer.h"

namespace lmtp::text {

// The tokenizer's end-of-text token, and the special token that the chat template writes after an
// assistant's message, as far as there are such: fine-tuned models end their answers with these,
// whatever their config.json says. Ascending. Renders a chat, where there is a template.
std::vector<TokenId> answer_end_ids(const tokenizer::Tokenizer& tokenizer,
                                    const LoadedChatTemplate& chat_template);

}  // namespace lmtp::text
