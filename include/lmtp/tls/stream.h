// A socket that speaks TLS or does not, behind one type: what reads and writes need not know.
#pragma once

#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/role.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <boost/beast/websocket/ssl.hpp>
#include <boost/beast/websocket/teardown.hpp>
#include <utility>
#include <variant>

#include "lmtp/tls/context.h"

namespace lmtp::tls {

// `Socket` is one of Asio's or Beast's. Owner: a connection, on its strand. At most one read and
// one write are under way at a time.
template <typename Socket>
class Stream {
 public:
  using next_layer_type = Socket;
  using executor_type = typename Socket::executor_type;
  using Tls = boost::beast::ssl_stream<Socket>;

  explicit Stream(Socket socket) : layers_(std::in_place_index<0>, std::move(socket)) {}

  executor_type get_executor() { return next_layer().get_executor(); }
  Socket& next_layer() {
    return is_tls() ? std::get<1>(layers_).next_layer() : std::get<0>(layers_);
  }
  const Socket& next_layer() const {
    return is_tls() ? std::get<1>(layers_).next_layer() : std::get<0>(layers_);
  }

  bool is_tls() const { return layers_.index() == 1; }
  // REQUIRES: is_tls().
  Tls& tls() { return std::get<1>(layers_); }
  // From now on it speaks TLS; the handshake is the caller's. Once, while nothing is under way.
  Tls& start_tls(Context& context) {
    Socket socket = std::move(std::get<0>(layers_));
    return layers_.template emplace<1>(std::move(socket), context);
  }

  template <typename Buffers, typename Handler>
  void async_read_some(const Buffers& buffers, Handler&& handler) {
    if (is_tls()) return tls().async_read_some(buffers, std::forward<Handler>(handler));
    std::get<0>(layers_).async_read_some(buffers, std::forward<Handler>(handler));
  }

  template <typename Buffers, typename Handler>
  void async_write_some(const Buffers& buffers, Handler&& handler) {
    if (is_tls()) return tls().async_write_some(buffers, std::forward<Handler>(handler));
    std::get<0>(layers_).async_write_some(buffers, std::forward<Handler>(handler));
  }

 private:
  std::variant<Socket, Tls> layers_;
};

// Beast finds it by its name.
template <typename Socket, typename Handler>
void async_teardown(boost::beast::role_type role, Stream<Socket>& stream, Handler&& handler) {
  using boost::beast::websocket::async_teardown;
  if (stream.is_tls()) return async_teardown(role, stream.tls(), std::forward<Handler>(handler));
  async_teardown(role, stream.next_layer(), std::forward<Handler>(handler));
}

}  // namespace lmtp::tls
