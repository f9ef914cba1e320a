// By what a request is found again: in the log, and by its client in the answer.
#pragma once

#include <string>
#include <vector>

#include "lmtp/request/caller.h"
#include "lmtp/server/http.h"

namespace lmtp::server {

// Sets the ids of its caller: the client's own where they are well formed, X-Request-Id as 1 to 128
// visible characters of ASCII, and traceparent by the W3C's Trace Context.
void set_ids(const HttpRequest& request, Caller& caller);

// The fields by which the answer tells them: X-Request-Id, under Anthropic's paths request-id, too.
std::vector<HttpField> id_fields(const HttpRequest& request, const Caller& caller);
// The same with another id of the request.
void rename_request(const std::string& id, std::vector<HttpField>& fields);

}  // namespace lmtp::server
