#include "ws_client.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/websocket.hpp>
#include <chrono>
#include <iterator>
#include <string>
#include <utility>

#include "lmtp/tls/stream.h"
#include "transport.h"

namespace lmtp::testing {

namespace asio = boost::asio;
namespace beast = boost::beast;

namespace {

using Tcp = asio::ip::tcp::socket;

// Waits where lmtp::tls::Stream calls back.
class Stream : public tls::Stream<Tcp> {
 public:
  explicit Stream(asio::io_context& io) : tls::Stream<Tcp>(Tcp(io)) {}

  void connect(std::uint16_t port, int receive_buffer_bytes = 0) {
    Tcp& tcp = next_layer();
    tcp.open(asio::ip::tcp::v4());
    if (receive_buffer_bytes > 0) {
      tcp.set_option(asio::socket_base::receive_buffer_size(receive_buffer_bytes));
    }
    tcp.connect({asio::ip::make_address("127.0.0.1"), port});
    tcp.set_option(asio::ip::tcp::no_delay(true));
    if (over_tls()) start_tls(client_tls()).handshake(asio::ssl::stream_base::client);
  }

  template <typename Buffers>
  std::size_t read_some(const Buffers& buffers, beast::error_code& error) {
    return is_tls() ? this->tls().read_some(buffers, error)
                    : next_layer().read_some(buffers, error);
  }
  template <typename Buffers>
  std::size_t read_some(const Buffers& buffers) {
    return is_tls() ? this->tls().read_some(buffers) : next_layer().read_some(buffers);
  }
  template <typename Buffers>
  std::size_t write_some(const Buffers& buffers, beast::error_code& error) {
    return is_tls() ? this->tls().write_some(buffers, error)
                    : next_layer().write_some(buffers, error);
  }
  template <typename Buffers>
  std::size_t write_some(const Buffers& buffers) {
    return is_tls() ? this->tls().write_some(buffers) : next_layer().write_some(buffers);
  }
};

template <typename Handler>
void async_teardown(beast::role_type role, Stream& stream, Handler&& handler) {
  tls::Stream<Tcp>& base = stream;
  async_teardown(role, base, std::forward<Handler>(handler));
}

void teardown(beast::role_type role, Stream& stream, beast::error_code& error) {
  using beast::websocket::teardown;
  if (!stream.is_tls()) return teardown(role, stream.next_layer(), error);
  stream.tls().shutdown(error);
}

}  // namespace

struct WsClient::Connection {
  asio::io_context io;
  beast::websocket::stream<Stream> socket{io};
};

WsClient::WsClient(std::uint16_t port, int receive_buffer_bytes, const std::string& target,
                   const std::string& authorization)
    : connection_(std::make_unique<Connection>()) {
  auto& socket = connection_->socket;
  socket.next_layer().connect(port, receive_buffer_bytes);
  if (!authorization.empty()) {
    socket.set_option(beast::websocket::stream_base::decorator(
        [authorization](beast::websocket::request_type& request) {
          request.set(beast::http::field::authorization, authorization);
        }));
  }
  socket.handshake("127.0.0.1", target);
  socket.read_message_max(0);
}

WsClient::~WsClient() = default;

void WsClient::send(const std::string& text) {
  connection_->socket.text(true);
  beast::error_code error;
  connection_->socket.write(asio::buffer(text), error);
}

void WsClient::send_binary(const std::string& bytes) {
  connection_->socket.binary(true);
  connection_->socket.write(asio::buffer(bytes));
}

void WsClient::send_part(const std::string& text) {
  connection_->socket.text(true);
  beast::error_code error;
  connection_->socket.write_some(false, asio::buffer(text), error);
}

std::optional<std::string> WsClient::read() {
  beast::flat_buffer buffer;
  bool done = false;
  beast::error_code error;
  connection_->socket.async_read(buffer, [&](beast::error_code e, std::size_t) {
    error = e;
    done = true;
  });
  asio::io_context& io = connection_->io;
  io.restart();
  io.run_for(std::chrono::minutes(1));
  if (!done) {
    ADD_FAILURE() << "no message within a minute";
    drop();
    io.restart();
    io.run();
    return std::nullopt;
  }
  if (error) return std::nullopt;
  return beast::buffers_to_string(buffer.data());
}

bool WsClient::read_entries() {
  const std::optional<std::string> message = read();
  if (!message) return false;
  last_message_ = *message;
  auto parsed = protocol::parse_server_message(*message);
  if (!parsed) {
    ADD_FAILURE() << parsed.error().message << ": " << *message;
    return false;
  }
  std::ranges::move(*parsed, std::back_inserter(entries_));
  return true;
}

std::optional<protocol::ServerEntry> WsClient::next() {
  while (entries_.empty()) {
    if (!read_entries()) return std::nullopt;
  }
  protocol::ServerEntry entry = std::move(entries_.front());
  entries_.erase(entries_.begin());
  return entry;
}

std::size_t WsClient::settle() {
  constexpr StreamId kAsked = 1'000'000'007;
  send("MODEL_INFO {\"stream_id\": " + std::to_string(kAsked) + "}");
  const auto answer = [&] {
    return std::ranges::find(entries_, kAsked, &protocol::ServerEntry::stream_id);
  };
  while (answer() == entries_.end()) {
    if (!read_entries()) return entries_.size();
  }
  entries_.erase(answer());
  return entries_.size();
}

WsClient::Outcome WsClient::collect(StreamId id) {
  Outcome outcome;
  while (std::optional<protocol::ServerEntry> entry = next()) {
    if (entry->is_msg || entry->stream_id != id) continue;
    if (!entry->error.empty()) {
      outcome.error = entry->error;
      return outcome;
    }
    outcome.tokens.push_back(*entry->token);
    outcome.logprobs.push_back(entry->logprob);
    outcome.finish = entry->finish_reason;
    if (outcome.finish != FinishReason::kNone) return outcome;
  }
  outcome.error = "closed: " + close_reason();
  return outcome;
}

int WsClient::close_code() const { return connection_->socket.reason().code; }

std::string WsClient::close_reason() const { return connection_->socket.reason().reason.c_str(); }

void WsClient::drop() {
  beast::error_code ignored;
  connection_->socket.next_layer().next_layer().close(ignored);
}

void WsClient::half_close() {
  beast::error_code ignored;
  connection_->socket.next_layer().next_layer().shutdown(asio::ip::tcp::socket::shutdown_send,
                                                         ignored);
}

void WsClient::send_raw(const std::string& bytes) {
  beast::error_code ignored;
  asio::write(connection_->socket.next_layer(), asio::buffer(bytes), ignored);
}

void WsClient::close() {
  beast::error_code ignored;
  connection_->socket.close(beast::websocket::close_code::normal, ignored);
}

std::string http_exchange(std::uint16_t port, const std::string& request) {
  asio::io_context io;
  Stream socket(io);
  socket.connect(port);
  asio::write(socket, asio::buffer(request));
  std::string answer;
  beast::error_code error;
  asio::read(socket, asio::dynamic_buffer(answer), error);
  return answer;
}

}  // namespace lmtp::testing
