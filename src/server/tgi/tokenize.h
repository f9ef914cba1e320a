// TGI's POST /tokenize and /chat_tokenize: the tokens of a text, and where each is in it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "context.h"
#include "lmtp/base/ids.h"
#include "lmtp/server/http.h"
#include "lmtp/tokenizer/tokenizer.h"

namespace lmtp::server {

// [{"id", "text", "start", "stop"}]: bytes [start, stop) of `text`, widened to whole characters. A
// token that is not part of the text is at [0, 0), as all are where a normalizer has changed it;
// `has_bos`: the first one is not, where it is BOS.
std::string tgi_tokens_json(const tokenizer::Tokenizer& tokenizer, std::string_view text,
                            std::span<const TokenId> ids, bool has_bos);

// What answers, as read_body() has it.
std::function<void()> read_tgi_tokenize(ServerContext& context, const std::string& body,
                                        const std::shared_ptr<HttpResponder>& responder);
std::function<void()> read_tgi_chat_tokenize(ServerContext& context, const std::string& body,
                                             const std::shared_ptr<HttpResponder>& responder);

}  // namespace lmtp::server
