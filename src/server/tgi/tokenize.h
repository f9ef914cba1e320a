// The answers to TGI's POST /tokenize and /chat_tokenize: the tokens of a text, and where each is
// in it.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "lmtp/base/ids.h"
#include "lmtp/tokenizer/tokenizer.h"

namespace lmtp::server {

// [{"id", "text", "start", "stop"}]: bytes [start, stop) of `text`, widened to whole characters. A
// token that is not part of the text is at [0, 0), as all are where a normalizer has changed it;
// `has_bos`: the first one is not, where it is BOS.
std::string tgi_tokens_json(const tokenizer::Tokenizer& tokenizer, std::string_view text,
                            std::span<const TokenId> ids, bool has_bos);

}  // namespace lmtp::server
