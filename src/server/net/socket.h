// What the server accepts: connections over TCP and over a Unix socket alike.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/beast/core/basic_stream.hpp>

#include "lmtp/tls/stream.h"

namespace lmtp::server {

using Socket = boost::asio::generic::stream_protocol::socket;
// With timeouts.
using TcpStream = boost::beast::basic_stream<boost::asio::generic::stream_protocol>;
using SocketStream = tls::Stream<TcpStream>;

}  // namespace lmtp::server

extern template class lmtp::tls::Stream<lmtp::server::TcpStream>;
