// Who may ask, as far as a browser says: any web page may open a WebSocket to this machine, and
// any name may be made to point here (DNS rebinding).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lmtp/server/http.h"
#include "lmtp/server/server.h"

namespace lmtp::server {

// nullopt if the request may be answered. 421 if it calls the server by a name that is not its own
// (checked if the server is bound to loopback or has allowed_hosts; ports are not compared), 403 if
// it comes from a page of another origin. Clients that are no browser send no Origin.
std::optional<HttpResponse> refuse_foreign(const HttpRequest& request, const ServerOptions& options,
                                           bool on_loopback);

// Whether it comes from a page that is answered by `--allow-origin *` or `null` alone.
bool is_of_any_page(const HttpRequest& request, const ServerOptions& options);

// The fields by which a browser lets a page read the answer, of a request that was not refused.
// Nothing that a browser adds by itself (cookies, remembered passwords) is asked for: a page sends
// its key in a field.
std::vector<HttpField> cors_fields(const HttpRequest& request, const ServerOptions& options);

// Whether a browser asks by it, without a key, if a page may send a request with other fields or
// methods; and the answer, where such requests are taken: `methods`.
bool is_preflight(const HttpRequest& request);
HttpResponse preflight_answer(const HttpRequest& request, std::string methods);

}  // namespace lmtp::server
