// A listening socket.
#pragma once

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "lmtp/base/result.h"
#include "net/socket.h"
#include "net/unix_socket.h"

namespace lmtp::server {

// Everything but open and stop runs on its strand; the pending accept keeps the object alive.
class Listener : public std::enable_shared_from_this<Listener> {
 public:
  // What is done with an accepted socket, which has a strand of its own. What it throws costs that
  // socket.
  using OnSocket = std::function<void(Socket)>;

  // `io` outlives it.
  Listener(boost::asio::io_context& io, OnSocket on_socket);

  // Binds and listens: one of the three, once, before the io threads run. The error names the
  // address and the remedy.
  Result<void> open(const std::string& host, std::uint16_t port);
  Result<void> open_unix(const std::string& path);
  // Takes a listening stream socket over, of TCP or a Unix socket whose file is not its own.
  Result<void> adopt(int fd);
  // Both of TCP. Only this machine reaches what is on loopback.
  std::uint16_t port() const { return port_; }
  bool on_loopback() const { return on_loopback_; }

  void start();
  // Returns when no further connection is accepted: who connects later waits for another listener
  // of the same socket. REQUIRES: io threads run; this is none of them.
  void stop();

 private:
  void accept();
  void on_accepted(boost::system::error_code error, Socket socket);

  boost::asio::io_context& io_;
  const OnSocket on_socket_;
  boost::asio::basic_socket_acceptor<boost::asio::generic::stream_protocol> acceptor_;
  UnixSocketFile file_;
  boost::asio::steady_timer retry_timer_;
  std::uint16_t port_ = 0;
  bool on_loopback_ = false;
};

}  // namespace lmtp::server
