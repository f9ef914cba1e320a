// The API keys that an HTTP request brings, and the answers for want of one.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/base/result.h"
#include "lmtp/server/http.h"

namespace lmtp::server {

// Removes them from the request, so that nothing that handles it later can show them: Authorization
// (Bearer, or Basic, whose password it is), api-key, x-api-key; of the query `key`, which counts
// where the request begins a WebSocket. An error, with what was sent removed all the same, where
// there are more than kKeysOfRequestMax such fields: each key is compared with all that are held.
inline constexpr std::size_t kKeysOfRequestMax = 2;
Result<std::vector<std::string>> take_keys(HttpRequest& request, bool begins_websocket);
// Removes from the query `ticket` (tickets.h), which counts where the request begins a WebSocket.
std::string take_ticket(HttpRequest& request);

// Without its `key` and `ticket`, by which a WebSocket's route is found.
std::string without_key(std::string_view query);

// 401. `was_sent`: there was one, but none that is accepted.
HttpResponse no_access(bool was_sent);
// 401: it came in the query, from a page that `--allow-origin *` alone lets in.
HttpResponse no_query_key();
// 403: the key lacks the right.
HttpResponse no_right();

}  // namespace lmtp::server
