#include "listener.h"

#include <sys/socket.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <string>
#include <utility>

#include "lmtp/base/log.h"

namespace lmtp::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// Accepting fails where the process has no descriptor left; one may be closed soon.
constexpr std::chrono::milliseconds kAcceptRetry{100};

Result<tcp::endpoint> resolve(asio::io_context& io, const std::string& host, std::uint16_t port) {
  tcp::resolver resolver(io);
  error_code error;
  const auto found = resolver.resolve(
      host, std::to_string(port), tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error || found.empty()) {
    return Error{ErrorCode::kUnavailable,
                 "cannot listen on '" + host + "': " + error.message() +
                     "; give --host an address of this machine, such as 127.0.0.1 or 0.0.0.0"};
  }
  // A name of both kinds, such as localhost, means 127.0.0.1: what clients try first or next.
  for (const auto& entry : found) {
    if (entry.endpoint().address().is_v4()) return entry.endpoint();
  }
  return found.begin()->endpoint();
}

std::string why_not_bound(const tcp::endpoint& endpoint, const error_code& error) {
  std::string remedy = "choose another address by --host and --port";
  if (error == asio::error::address_in_use) {
    remedy = "another program listens there; stop it or choose another port by --port";
  } else if (error == asio::error::access_denied) {
    remedy = "ports below 1024 are for root; choose another by --port";
  }
  std::string address = endpoint.address().to_string();
  if (endpoint.address().is_v6()) address = "[" + address + "]";
  return "cannot listen on " + address + ":" + std::to_string(endpoint.port()) + ": " +
         error.message() + "; " + remedy;
}

}  // namespace

Listener::Listener(asio::io_context& io, OnSocket on_socket)
    : io_(io),
      on_socket_(std::move(on_socket)),
      acceptor_(asio::make_strand(io)),
      retry_timer_(acceptor_.get_executor()) {}

Result<void> Listener::open(const std::string& host, std::uint16_t port) {
  const auto endpoint = resolve(io_, host, port);
  if (!endpoint) return endpoint.error();
  error_code error;
  tcp::acceptor acceptor(acceptor_.get_executor());
  acceptor.open(endpoint->protocol(), error);
  if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(*endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) return Error{ErrorCode::kUnavailable, why_not_bound(*endpoint, error)};
  port_ = acceptor.local_endpoint(error).port();
  on_loopback_ = endpoint->address().is_loopback();
  acceptor_ = std::move(acceptor);
  return {};
}

Result<void> Listener::open_unix(const std::string& path) {
  asio::local::stream_protocol::acceptor acceptor(acceptor_.get_executor());
  if (const Result<void> listens = file_.listen(acceptor, path); !listens) return listens;
  acceptor_ = std::move(acceptor);
  return {};
}

Result<void> Listener::adopt(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  error_code error(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 ? 0 : errno,
                   boost::system::system_category());
  if (!error) acceptor_.assign(asio::generic::stream_protocol(address.ss_family, 0), fd, error);
  if (error) {
    return Error{ErrorCode::kUnavailable, "cannot listen on descriptor " + std::to_string(fd) +
                                              ": " + error.message() +
                                              "; it has to be a listening stream socket"};
  }
  if (address.ss_family == AF_UNIX) return {};
  tcp::endpoint endpoint;
  std::memcpy(endpoint.data(), &address, size);
  endpoint.resize(size);
  port_ = endpoint.port();
  on_loopback_ = endpoint.address().is_loopback();
  return {};
}

void Listener::start() {
  asio::post(acceptor_.get_executor(), [self = shared_from_this()] { self->accept(); });
}

void Listener::stop() {
  file_.remove();
  std::promise<void> closed;
  asio::post(acceptor_.get_executor(), [&] {
    error_code ignored;
    acceptor_.close(ignored);
    retry_timer_.cancel();
    closed.set_value();
  });
  closed.get_future().wait();
}

void Listener::accept() {
  if (!acceptor_.is_open()) return;
  acceptor_.async_accept(asio::make_strand(io_),
                         [self = shared_from_this()](error_code error, Socket socket) {
                           self->on_accepted(error, std::move(socket));
                         });
}

void Listener::on_accepted(error_code error, Socket socket) {
  if (!acceptor_.is_open()) {
    if (!error) on_socket_(std::move(socket));  // it came before the end
    return;
  }
  if (error) {
    log::warning("cannot accept a connection: " + error.message());
    retry_timer_.expires_after(kAcceptRetry);
    retry_timer_.async_wait([self = shared_from_this()](error_code cancelled) {
      if (!cancelled) self->accept();
    });
    return;
  }
  accept();  // first: what throws below costs its own connection, not all that would follow
  on_socket_(std::move(socket));
}

}  // namespace lmtp::server
