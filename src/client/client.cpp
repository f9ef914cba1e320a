#include "lmtp/client/client.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <iterator>
#include <utility>
#include <vector>

#include "connection.h"
#include "lmtp/base/check.h"
#include "lmtp/protocol/codec.h"
#include "lmtp/tls/context.h"

namespace lmtp::client {

struct Client::Impl {
  Connection connection;
  std::deque<protocol::ServerEntry> entries;  // of the latest message, those not given out

  // A message may have no entries: of an unknown verb, for example.
  Result<bool> take_message(int timeout_ms) {
    ReceivedMessage message;
    auto received = connection.receive(message, timeout_ms);
    if (!received || !*received) return received;
    auto parsed = protocol::parse_server_message(message.text);
    if (!parsed) {
      connection.fail(parsed.error().message);
      return parsed.error();
    }
    entries.assign(std::make_move_iterator(parsed->begin()),
                   std::make_move_iterator(parsed->end()));
    return true;
  }
};

Client::Client() : impl_(std::make_unique<Impl>()) {}
Client::~Client() = default;
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;

Result<Security> make_security(const SecurityOptions& options) {
  Security security{nullptr, options.api_key};
  if (options.api_key.find_first_of("\r\n") != std::string::npos) {
    return Error{ErrorCode::kInvalid, "--api-key: a key has no line ends"};
  }
  if (!options.tls && (options.insecure || !options.ca_file.empty())) {
    return Error{ErrorCode::kInvalid,
                 "--cacert and --insecure are for TLS: write --host wss://HOST:PORT"};
  }
  if (options.tls) {
    auto context = tls::client_context({options.ca_file, !options.insecure});
    if (!context) return context.error();
    security.tls = *std::move(context);
  }
  return security;
}

Result<void> Client::connect(const std::string& host, std::uint16_t port, int timeout_ms,
                             const Security& security) {
  LMTP_CHECK(timeout_ms >= 0, timeout_ms);
  impl_->entries.clear();
  return impl_->connection.connect(host, port, timeout_ms, security);
}

bool Client::connected() const { return impl_->connection.open(); }

Result<void> Client::send(const protocol::ClientMessage& message) {
  return impl_->connection.send(protocol::serialize_client_message(message));
}

Result<void> Client::send_text(const std::string& text) { return impl_->connection.send(text); }

Result<bool> Client::receive(protocol::ServerEntry& entry, int timeout_ms) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  int left_ms = timeout_ms;
  while (impl_->entries.empty()) {
    auto taken = impl_->take_message(left_ms);
    if (!taken || !*taken) return taken;
    if (timeout_ms < 0) continue;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    left_ms = std::max(0, static_cast<int>(left.count()));
  }
  entry = std::move(impl_->entries.front());
  impl_->entries.pop_front();
  return true;
}

Result<bool> Client::receive_message(ReceivedMessage& message, int timeout_ms) {
  LMTP_CHECK(impl_->entries.empty(), impl_->entries.size());
  return impl_->connection.receive(message, timeout_ms);
}

bool Client::pause(int duration_ms) { return impl_->connection.pause(duration_ms); }

void Client::interrupt() {
  const std::uint64_t one = 1;
  // Can fail only if the eventfd's counter is full; a wake is then pending anyway.
  [[maybe_unused]] const auto written = ::write(impl_->connection.wake_fd(), &one, sizeof(one));
}

void Client::close() { impl_->connection.close(); }

}  // namespace lmtp::client
