// The listening socket.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "lmtp/base/result.h"

namespace lmtp::server {

// Everything but open and stop runs on its strand; the pending accept keeps the object alive.
class Listener : public std::enable_shared_from_this<Listener> {
 public:
  // What is done with an accepted socket, which has a strand of its own. What it throws costs that
  // socket.
  using OnSocket = std::function<void(boost::asio::ip::tcp::socket)>;

  // `io` outlives it.
  Listener(boost::asio::io_context& io, OnSocket on_socket);

  // Binds and listens. Once, before the io threads run. The error names the address and the remedy.
  Result<void> open(const std::string& host, std::uint16_t port);
  std::uint16_t port() const { return port_; }
  // Only this machine reaches it.
  bool on_loopback() const { return on_loopback_; }

  void start();
  // No further connection is accepted. Any thread.
  void stop();

 private:
  void accept();
  void on_accepted(boost::system::error_code error, boost::asio::ip::tcp::socket socket);

  boost::asio::io_context& io_;
  const OnSocket on_socket_;
  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer retry_timer_;
  std::uint16_t port_ = 0;
  bool on_loopback_ = false;
};

}  // namespace lmtp::server
