// Who may ask, as far as a browser says: any web page may open a WebSocket to this machine, and
// any name may be made to point here (DNS rebinding).
#pragma once

#include <optional>

#include "lmtp/server/http.h"
#include "lmtp/server/server.h"

namespace lmtp::server {

// nullopt if the request may be answered. 421 if it calls the server by a name that is not its own
// (checked if the server is bound to loopback or has allowed_hosts; ports are not compared), 403 if
// it comes from a page of another origin. Clients that are no browser send no Origin.
std::optional<HttpResponse> refuse_foreign(const HttpRequest& request, const ServerOptions& options,
                                           bool on_loopback);

}  // namespace lmtp::server
