// The layer below a WebSocket.
#pragma once

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <boost/asio/associated_allocator.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/beast/core/buffered_read_stream.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/role.hpp>
#include <boost/beast/websocket/teardown.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "lmtp/base/runtime.h"
#include "net/socket.h"

namespace lmtp::server {

// A socket that is first read from a buffer: what came behind the upgrade request. It reports when
// the WebSocket begins to wait for the peer to close, which Beast does by itself after a close
// frame or a protocol error, and for minutes; and when it has read and does not read on, because
// its answer (to a ping, or to a protocol error) has to be written first.
class ClientStream
    : public boost::beast::buffered_read_stream<SocketStream, boost::beast::flat_buffer> {
  using Base = boost::beast::buffered_read_stream<SocketStream, boost::beast::flat_buffer>;

 public:
  ClientStream(SocketStream stream, boost::beast::flat_buffer early)
      : buffered_read_stream(std::move(stream)) {
    buffer() = std::move(early);
  }

  std::function<void()> on_teardown;

  // Lives as long as a read that is under way.
  struct Reading {
    bool under_way = false;
    runtime::Clock::time_point ended{};  // the last one that gave something
    std::function<void()> on_paused;
  };
  Reading& reading() { return *reading_; }
  // While it stays the same, the peer neither sends what is read nor takes what is written.
  struct Progress {
    std::uint64_t num_begun = 0;  // reads and writes
    // Bytes that the kernel holds for the peer: it waits for a third of its buffer to be free
    // before it lets the next write begin, which a slow reader may take minutes for.
    int num_unsent = 0;
    bool operator==(const Progress&) const = default;
  };
  Progress progress() {
    Progress now{num_begun_, 0};
    ::ioctl(next_layer().next_layer().socket().native_handle(), SIOCOUTQ, &now.num_unsent);
    return now;
  }

  template <typename Buffers, typename Handler>
  void async_read_some(const Buffers& buffers, Handler&& handler) {
    ++num_begun_;
    reading_->under_way = true;
    Base::async_read_some(buffers,
                          OnRead<std::decay_t<Handler>>{reading_, std::forward<Handler>(handler)});
  }

  template <typename Buffers, typename Handler>
  void async_write_some(const Buffers& buffers, Handler&& handler) {
    ++num_begun_;
    Base::async_write_some(buffers, std::forward<Handler>(handler));
  }

 private:
  template <typename Handler>
  struct OnRead {
    std::shared_ptr<Reading> reading;
    Handler handler;

    using executor_type = boost::asio::associated_executor_t<Handler>;
    using allocator_type = boost::asio::associated_allocator_t<Handler>;
    executor_type get_executor() const noexcept {
      return boost::asio::get_associated_executor(handler);
    }
    allocator_type get_allocator() const noexcept {
      return boost::asio::get_associated_allocator(handler);
    }
    void operator()(boost::beast::error_code error, std::size_t num_bytes) {
      reading->under_way = false;
      if (num_bytes > 0) reading->ended = runtime::Clock::now();
      handler(error, num_bytes);  // reads on, as a rule
      if (!reading->under_way && reading->on_paused) reading->on_paused();
    }
  };

  const std::shared_ptr<Reading> reading_ = std::make_shared<Reading>();
  std::uint64_t num_begun_ = 0;
};

// Beast finds it by its name.
template <typename Handler>
void async_teardown(boost::beast::role_type role, ClientStream& stream, Handler&& handler) {
  if (stream.on_teardown) stream.on_teardown();
  using boost::beast::websocket::async_teardown;
  async_teardown(role, stream.next_layer(), std::forward<Handler>(handler));
}

}  // namespace lmtp::server
