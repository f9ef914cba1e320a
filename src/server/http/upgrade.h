// What an upgrade to WebSocket hands over.
#pragma once

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>
#include <memory>

#include "lmtp/request/caller.h"
#include "net/connection.h"
#include "net/socket.h"

namespace lmtp::server {

struct ServerContext;

// A socket on which an upgrade request has come. It closes with this struct unless the handler
// moves it out.
struct WebSocketUpgrade {
  std::shared_ptr<ServerContext> context;
  SocketStream stream;
  boost::beast::flat_buffer early;  // what came behind the request
  ConnectionRegistry::Place place;
  std::shared_ptr<const Caller> caller;
  boost::beast::http::request<boost::beast::http::empty_body> request;
};

}  // namespace lmtp::server
