// A socket that speaks TLS or does not, behind one type: what reads and writes need not know.
#pragma once

#include <boost/asio/any_completion_handler.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/role.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <boost/beast/websocket/ssl.hpp>
#include <boost/beast/websocket/teardown.hpp>
#include <boost/container/static_vector.hpp>
#include <cstddef>
#include <utility>
#include <variant>

#include "lmtp/tls/context.h"

namespace lmtp::tls {

// `Socket` is one of Asio's or Beast's. Owner: a connection, on its strand. At most one read and
// one write are under way at a time. Buffers and handlers lose their types here: else each layer
// below would be compiled anew for every operation of those above, TLS for all of a WebSocket's.
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
    read_some(some_of<boost::asio::mutable_buffer>(buffers),
              erase<std::size_t>(std::forward<Handler>(handler)));
  }
  template <typename Buffers, typename Handler>
  void async_write_some(const Buffers& buffers, Handler&& handler) {
    write_some(some_of<boost::asio::const_buffer>(buffers),
               erase<std::size_t>(std::forward<Handler>(handler)));
  }
  template <typename Handler>
  void async_tear_down(boost::beast::role_type role, Handler&& handler) {
    tear_down(role, erase<>(std::forward<Handler>(handler)));
  }

 private:
  static constexpr std::size_t kMaxBuffers = 8;  // a WebSocket's write has three
  template <typename Buffer>
  using SomeBuffers = boost::container::static_vector<Buffer, kMaxBuffers>;
  // With its executor beside it, because Asio's type for that of such a handler cannot be posted
  // to.
  template <typename... Results>
  using AnyHandler = boost::asio::executor_binder<
      boost::asio::any_completion_handler<void(boost::beast::error_code, Results...)>,
      executor_type>;

  template <typename... Results, typename Handler>
  AnyHandler<Results...> erase(Handler&& handler) {
    executor_type executor = boost::asio::get_associated_executor(handler, get_executor());
    typename AnyHandler<Results...>::target_type erased(std::forward<Handler>(handler));
    return boost::asio::bind_executor(std::move(executor), std::move(erased));
  }
  template <typename Buffer, typename Buffers>
  static SomeBuffers<Buffer> some_of(const Buffers& buffers) {
    SomeBuffers<Buffer> some;
    const auto end = boost::asio::buffer_sequence_end(buffers);
    for (auto it = boost::asio::buffer_sequence_begin(buffers);
         it != end && some.size() < kMaxBuffers; ++it) {
      some.push_back(*it);
    }
    return some;
  }

  void read_some(const SomeBuffers<boost::asio::mutable_buffer>& buffers,
                 AnyHandler<std::size_t> handler) {
    if (is_tls()) return tls().async_read_some(buffers, std::move(handler));
    std::get<0>(layers_).async_read_some(buffers, std::move(handler));
  }
  void write_some(const SomeBuffers<boost::asio::const_buffer>& buffers,
                  AnyHandler<std::size_t> handler) {
    if (is_tls()) return tls().async_write_some(buffers, std::move(handler));
    std::get<0>(layers_).async_write_some(buffers, std::move(handler));
  }
  void tear_down(boost::beast::role_type role, AnyHandler<> handler) {
    using boost::beast::websocket::async_teardown;
    if (is_tls()) return async_teardown(role, tls(), std::move(handler));
    async_teardown(role, next_layer(), std::move(handler));
  }

  std::variant<Socket, Tls> layers_;
};

// Beast finds it by its name.
template <typename Socket, typename Handler>
void async_teardown(boost::beast::role_type role, Stream<Socket>& stream, Handler&& handler) {
  stream.async_tear_down(role, std::forward<Handler>(handler));
}

}  // namespace lmtp::tls
