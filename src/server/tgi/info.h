// TGI's GET /info.
#pragma once

#include <string_view>

#include "context.h"
#include "lmtp/server/http.h"

namespace lmtp::server {

// Of the only model; where several may be served, of the one that is ready, or would be asked for
// first.
HttpResponse tgi_info(const ServerContext& context);

}  // namespace lmtp::server
