// The answers of TGI's endpoints that generate.
#pragma once

#include <memory>

#include "context.h"
#include "lmtp/base/json_writer.h"
#include "lmtp/server/http.h"
#include "request.h"

namespace lmtp::server {

// Generates and answers. `context` outlives the connection. Thread: the strand of `responder`.
void answer_tgi(ServerContext& context, TgiRequest request,
                const std::shared_ptr<HttpResponder>& responder);

// A token's id and text as the beginning of an object, which the caller closes.
void write_tgi_token(TokenId token, std::string_view text, JsonWriter& json);

}  // namespace lmtp::server
