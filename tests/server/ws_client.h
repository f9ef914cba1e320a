// A WebSocket client for tests: every wait has an end. Beast stays in the source: its templates
// take half a minute a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lmtp/protocol/codec.h"

namespace lmtp::testing {

class WsClient {
 public:
  explicit WsClient(std::uint16_t port, int receive_buffer_bytes = 0,
                    const std::string& target = "/", const std::string& authorization = {});
  ~WsClient();
  WsClient(const WsClient&) = delete;
  WsClient& operator=(const WsClient&) = delete;

  void send(const std::string& text);
  void send_binary(const std::string& bytes);
  // The beginning of a message, or more of it.
  void send_part(const std::string& text);
  // Bytes as they are, below the WebSocket.
  void send_raw(const std::string& bytes);

  // The next message; nothing where the connection has closed.
  std::optional<std::string> read();

  // The next entry of any message; nothing where the connection has closed.
  std::optional<protocol::ServerEntry> next();

  // Until the server has done what was sent before: an engine has been told what was for it.
  // Returns how many entries are there for next(). REQUIRES: the model is ready.
  std::size_t settle();

  struct Outcome {
    std::vector<TokenId> tokens;
    std::vector<float> logprobs;
    FinishReason finish = FinishReason::kNone;
    std::string error;
  };

  // Reads until the stream ends; entries of other streams are dropped.
  Outcome collect(StreamId id);

  const std::string& last_message() const { return last_message_; }
  int close_code() const;
  std::string close_reason() const;

  // Without a goodbye.
  void drop();
  // Nothing more is sent, without a goodbye; the descriptor stays.
  void half_close();
  void close();

 private:
  struct Connection;

  // Whether another message's entries are there.
  bool read_entries();

  const std::unique_ptr<Connection> connection_;
  std::vector<protocol::ServerEntry> entries_;
  std::string last_message_;
};

// What the server answers to these bytes, until it closes.
std::string http_exchange(std::uint16_t port, const std::string& request);

}  // namespace lmtp::testing
