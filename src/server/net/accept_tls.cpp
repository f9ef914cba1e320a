#include "accept_tls.h"

#include <boost/beast/core/detect_ssl.hpp>
#include <utility>

namespace lmtp::server {

void accept_tls(SocketStream& stream, tls::Context& context, boost::beast::flat_buffer& buffer,
                std::function<void(boost::system::error_code)> done) {
  auto on_detected = [&stream, &context, &buffer, done = std::move(done)](
                         boost::system::error_code error, bool is_tls) mutable {
    if (error || !is_tls) return done(error);
    // Boost 1.81 asks, wrongly, for a handler that can do without the number.
    auto on_shaken = [&buffer, done = std::move(done)](boost::system::error_code failed,
                                                       std::size_t num_used = 0) {
      buffer.consume(num_used);
      done(failed);
    };
    stream.start_tls(context).async_handshake(boost::asio::ssl::stream_base::server, buffer.data(),
                                              std::move(on_shaken));
  };
  boost::beast::async_detect_ssl(stream.next_layer(), buffer, std::move(on_detected));
}

}  // namespace lmtp::server
