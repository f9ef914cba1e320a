// vLLM's POST /tokenize and /detokenize.
#pragma once

#include <memory>
#include <string>

#include "context.h"
#include "lmtp/server/http.h"

namespace lmtp::server {

// Thread of both: the strand of `responder`.
void answer_openai_tokenize(ServerContext& context, const std::string& body,
                            const std::shared_ptr<HttpResponder>& responder);
void answer_openai_detokenize(ServerContext& context, const std::string& body,
                              const std::shared_ptr<HttpResponder>& responder);

}  // namespace lmtp::server
