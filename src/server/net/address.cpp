#include "net/address.h"

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstring>

namespace lmtp::server {

std::string address_of(const Socket& socket) {
  boost::system::error_code error;
  const auto remote = socket.remote_endpoint(error);
  if (error) return {};
  if (remote.protocol().family() == AF_UNIX) return "unix";
  boost::asio::ip::tcp::endpoint endpoint;
  if (remote.size() > endpoint.capacity()) return {};
  std::memcpy(endpoint.data(), remote.data(), remote.size());
  endpoint.resize(remote.size());
  const auto address = endpoint.address();
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    return make_address_v4(boost::asio::ip::v4_mapped, address.to_v6()).to_string();
  }
  return address.to_string();
}

}  // namespace lmtp::server
