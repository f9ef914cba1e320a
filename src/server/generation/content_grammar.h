// Content that is constrained, of models that write something before content.
#pragma once

#include <string>

#include "lmtp/request/grammar.h"
#include "lmtp/tokenizer/tokenizer.h"

namespace lmtp::server {

// The grammar, after that text (ReplyLayout::content_begin). One of Grammar::Kind::kLlguidance is
// of all that the model writes, and stays as it is, and so does one that cannot be read.
void begin_content(const std::string& begin, const tokenizer::Tokenizer& tokenizer,
                   Grammar& content);

}  // namespace lmtp::server
