// An accepted socket before (or without) its upgrade to a WebSocket.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <memory>
#include <optional>

#include "connection.h"
#include "context.h"
#include "http.h"

namespace lmtp::server {

// Reads requests one after the other, each within a time limit; ends itself. Everything but
// shut_down runs on the socket's strand; pending operations keep the object alive.
class HttpSession : public Connection, public std::enable_shared_from_this<HttpSession> {
 public:
  // `refuse`: there are too many connections; whatever is asked is answered with 503.
  HttpSession(std::shared_ptr<ServerContext> context, boost::asio::ip::tcp::socket socket,
              bool refuse);
  ~HttpSession() override;

  // Once, from any thread. Nothing happens where the server is stopping.
  void start();
  void shut_down() override { drop(); }
  void drop() override;

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::empty_body>;

  void read();
  void on_read(boost::beast::error_code error);
  void respond(HttpResponse response);
  void on_written(boost::beast::error_code error, bool keep_alive);
  void drain();

  const std::shared_ptr<ServerContext> context_;  // outlives the socket
  ConnectionRegistry::Place place_;
  const bool refuse_;
  boost::beast::tcp_stream stream_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;  // a new one for each request
  int num_drained_ = 0;
};

}  // namespace lmtp::server
