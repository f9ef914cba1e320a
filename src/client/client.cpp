#include "lmtp/client/client.h"

#include <unistd.h>

#include <utility>

#include "connection.h"
#include "lmtp/protocol/codec.h"

namespace lmtp::client {

struct Client::Impl {
  Connection connection;
};

Client::Client() : impl_(std::make_unique<Impl>()) {}
Client::~Client() = default;
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;

Result<void> Client::connect(const std::string& host, std::uint16_t port, int timeout_ms) {
  LMTP_CHECK(timeout_ms >= 0, timeout_ms);
  return impl_->connection.connect(host, port, timeout_ms);
}

bool Client::connected() const { return impl_->connection.open(); }

Result<void> Client::send(const protocol::ClientMessage& message) {
  return impl_->connection.send(protocol::serialize_client_message(message));
}

Result<void> Client::send_text(const std::string& text) { return impl_->connection.send(text); }

Result<bool> Client::receive(protocol::ServerEntry& entry, int timeout_ms) {
  return impl_->connection.receive(entry, timeout_ms);
}

void Client::interrupt() {
  const std::uint64_t one = 1;
  // Can only fail when 2^64 wakes are unread; then one more is not missed.
  [[maybe_unused]] const auto written = ::write(impl_->connection.wake_fd(), &one, sizeof(one));
}

void Client::close() { impl_->connection.close(); }

}  // namespace lmtp::client
