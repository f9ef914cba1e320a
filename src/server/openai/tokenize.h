// vLLM's POST /tokenize and /detokenize.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "context.h"
#include "lmtp/server/http.h"

namespace lmtp::server {

// What answers, as read_body() has it.
std::function<void()> read_openai_tokenize(ServerContext& context, const std::string& body,
                                           const std::shared_ptr<HttpResponder>& responder);
std::function<void()> read_openai_detokenize(ServerContext& context, const std::string& body,
                                             const std::shared_ptr<HttpResponder>& responder);

}  // namespace lmtp::server
