// Who may ask, as far as a browser says: any web page may open a WebSocket to this machine, and
// any name may be made to point here (DNS rebinding).
#pragma once

#include <optional>

#include "lmtp/server/http.h"
#include "lmtp/server/server.h"

namespace lmtp::server {

// Nothing where the request may be answered. 421 where it calls the server by a name that is not
// its own (asked where it is bound to loopback or has allowed_hosts; ports are not compared), 403
// where it comes from a page of another origin. What is no browser sends no Origin.
std::optional<HttpResponse> refuse_foreign(const HttpRequest& request, const ServerOptions& options,
                                           bool on_loopback);

}  // namespace lmtp::server
