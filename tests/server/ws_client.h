// A WebSocket client for tests: every wait has an end.
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/websocket.hpp>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lmtp/protocol/codec.h"

namespace lmtp::testing {

class WsClient {
 public:
  explicit WsClient(std::uint16_t port, int receive_buffer_bytes = 0) : socket_(io_) {
    auto& tcp = socket_.next_layer();
    tcp.open(boost::asio::ip::tcp::v4());
    if (receive_buffer_bytes > 0) {
      tcp.set_option(boost::asio::socket_base::receive_buffer_size(receive_buffer_bytes));
    }
    tcp.connect({boost::asio::ip::make_address("127.0.0.1"), port});
    tcp.set_option(boost::asio::ip::tcp::no_delay(true));
    socket_.handshake("127.0.0.1", "/");
    socket_.read_message_max(0);
  }

  void send(const std::string& text) {
    socket_.text(true);
    boost::beast::error_code error;
    socket_.write(boost::asio::buffer(text), error);
  }
  void send_binary(const std::string& bytes) {
    socket_.binary(true);
    socket_.write(boost::asio::buffer(bytes));
  }

  // The next message; nothing where the connection has closed.
  std::optional<std::string> read() {
    boost::beast::flat_buffer buffer;
    bool done = false;
    boost::beast::error_code error;
    socket_.async_read(buffer, [&](boost::beast::error_code e, std::size_t) {
      error = e;
      done = true;
    });
    io_.restart();
    io_.run_for(std::chrono::minutes(1));
    if (!done) {
      ADD_FAILURE() << "no message within a minute";
      drop();
      io_.restart();
      io_.run();
      return std::nullopt;
    }
    if (error) return std::nullopt;
    return boost::beast::buffers_to_string(buffer.data());
  }

  // The next entry of any message; nothing where the connection has closed.
  std::optional<protocol::ServerEntry> next() {
    while (entries_.empty()) {
      const std::optional<std::string> message = read();
      if (!message) return std::nullopt;
      last_message_ = *message;
      auto parsed = protocol::parse_server_message(*message);
      if (!parsed) {
        ADD_FAILURE() << parsed.error().message << ": " << *message;
        return std::nullopt;
      }
      entries_ = *std::move(parsed);
    }
    protocol::ServerEntry entry = std::move(entries_.front());
    entries_.erase(entries_.begin());
    return entry;
  }

  struct Outcome {
    std::vector<TokenId> tokens;
    std::vector<float> logprobs;
    protocol::FinishReason finish = protocol::FinishReason::kNone;
    std::string error;
  };

  // Reads until the stream ends; entries of other streams are dropped.
  Outcome collect(StreamId id) {
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
      if (outcome.finish != protocol::FinishReason::kNone) return outcome;
    }
    outcome.error = "closed: " + std::string(socket_.reason().reason.c_str());
    return outcome;
  }

  const std::string& last_message() const { return last_message_; }
  int close_code() const { return socket_.reason().code; }
  std::string close_reason() const { return socket_.reason().reason.c_str(); }
  boost::asio::ip::tcp::socket& tcp() { return socket_.next_layer(); }

  // Without a goodbye.
  void drop() {
    boost::beast::error_code ignored;
    socket_.next_layer().close(ignored);
  }
  void close() {
    boost::beast::error_code ignored;
    socket_.close(boost::beast::websocket::close_code::normal, ignored);
  }

 private:
  boost::asio::io_context io_;
  boost::beast::websocket::stream<boost::asio::ip::tcp::socket> socket_;
  std::vector<protocol::ServerEntry> entries_;
  std::string last_message_;
};

}  // namespace lmtp::testing
