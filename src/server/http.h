// The answers to plain HTTP requests, as a function of the request.
#pragma once

#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/status.hpp>
#include <boost/beast/http/string_body.hpp>
#include <string>
#include <string_view>

#include "lmtp/engine/model_manager.h"

namespace lmtp::server {

using HttpRequest = boost::beast::http::request<boost::beast::http::empty_body>;
using HttpResponse = boost::beast::http::response<boost::beast::http::string_body>;

// GET and HEAD of / and /health; 404 and 405 for the rest. REQUIRES: not a WebSocket upgrade at /.
HttpResponse answer_http(const HttpRequest& request, const engine::ModelManager& models,
                         std::string_view version);

// A plain text answer, after which the connection closes.
HttpResponse refuse_http(boost::beast::http::status status, std::string_view text,
                         std::string_view version);

}  // namespace lmtp::server
