// The listening socket.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <memory>

#include "context.h"
#include "lmtp/base/result.h"

namespace lmtp::server {

// Everything but open and stop runs on its strand; the pending accept keeps the object alive.
class Listener : public std::enable_shared_from_this<Listener> {
 public:
  explicit Listener(std::shared_ptr<ServerContext> context);

  // Binds and listens. Once, before the io threads run. The error names the address and the remedy.
  Result<void> open();
  std::uint16_t port() const { return port_; }

  void start();
  // No further connection is accepted. Any thread.
  void stop();

 private:
  void accept();
  void on_accepted(boost::system::error_code error, boost::asio::ip::tcp::socket socket);

  const std::shared_ptr<ServerContext> context_;
  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer retry_timer_;
  std::uint16_t port_ = 0;
};

}  // namespace lmtp::server
