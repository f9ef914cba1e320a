// What the server accepts: connections over TCP and over a Unix socket alike.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/beast/core/basic_stream.hpp>

namespace lmtp::server {

using Socket = boost::asio::generic::stream_protocol::socket;
using SocketStream = boost::beast::basic_stream<boost::asio::generic::stream_protocol>;

}  // namespace lmtp::server
