// The layer below a WebSocket.
#pragma once

#include <boost/beast/core/buffered_read_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/role.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/websocket/teardown.hpp>
#include <functional>
#include <utility>

namespace lmtp::server {

// A socket that is first read from a buffer: what came behind the upgrade request. It tells when
// the WebSocket begins to wait for the peer to close, which Beast does by itself after a close
// frame or a protocol error, and for minutes.
class ClientStream : public boost::beast::buffered_read_stream<boost::beast::tcp_stream,
                                                               boost::beast::flat_buffer> {
 public:
  ClientStream(boost::beast::tcp_stream stream, boost::beast::flat_buffer early)
      : buffered_read_stream(std::move(stream)) {
    buffer() = std::move(early);
  }

  std::function<void()> on_teardown;
};

// Beast finds it by its name.
template <typename Handler>
void async_teardown(boost::beast::role_type role, ClientStream& stream, Handler&& handler) {
  if (stream.on_teardown) stream.on_teardown();
  using boost::beast::websocket::async_teardown;
  async_teardown(role, stream.next_layer(), std::forward<Handler>(handler));
}

}  // namespace lmtp::server
