// The first bytes of a connection on a port that speaks TLS.
#pragma once

#include <boost/beast/core/flat_buffer.hpp>
#include <functional>

#include "net/socket.h"

namespace lmtp::server {

// Shakes hands where the client begins with TLS; where it does not, stream.is_tls() stays false and
// what it sent is in `buffer`. All but the context stay until `done` is called, on the stream's
// strand. The socket's timeout is for the whole.
void accept_tls(SocketStream& stream, tls::Context& context, boost::beast::flat_buffer& buffer,
                std::function<void(boost::system::error_code)> done);

}  // namespace lmtp::server
