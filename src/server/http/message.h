// HTTP as text: the parts of it that the server writes by itself.
#pragma once

#include <boost/beast/http/message.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/server/http.h"

namespace lmtp::server {

// The request of that header, without its body.
HttpRequest plain_request(const boost::beast::http::request_header<>& header);

// Whether the body is sent as JSON: application/json, or application/...+json. Nothing else is read
// as such, so that no web page can send it without being asked for its origin first.
bool is_json(const HttpRequest& request);

// `sentence` as text/plain, with a line break behind it.
HttpResponse plain_text(int status, std::string_view sentence);

// How long to wait, rounded up to seconds; nothing for 0.
void set_retry_after(int wait_ms, HttpResponse& response);

// 429, with the seconds to wait.
HttpResponse too_many_requests(int retry_after_s, std::string_view sentence);

// How a client sees where a body ends.
enum class Framing { kLength, kChunks, kClose };

// The status line and the header, `more` of it included; only the length of the body is used.
// Without `keep_alive` the connection closes after the answer, and the header says so.
std::string head_text(const HttpResponse& response, const std::vector<HttpField>& more,
                      std::string_view version, Framing framing, bool keep_alive);

// `piece` as one chunk of a chunked body; an empty one ends the body.
std::string chunk_text(std::string_view piece);

// "org%2Fname" is "org/name". What is not an escape stays as it is.
std::string percent_decoded(std::string_view text);

// Compares names of header fields, ignoring upper and lower case.
bool equal_names(std::string_view a, std::string_view b);

}  // namespace lmtp::server
