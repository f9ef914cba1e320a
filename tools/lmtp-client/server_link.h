// ServerLink: requests to one server, one at a time, for interactive use: connects when needed,
// reconnects after a restart of the server, shows loading notices; Ctrl-C ends only the stream.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "common/server_info.h"
#include "lmtp/base/result.h"
#include "lmtp/client/client.h"
#include "lmtp/client/interrupts.h"
#include "lmtp/protocol/message.h"

namespace lmtp::tools {

inline constexpr int kCancelTimeoutMs = 2000;  // for the server to confirm; else a new connection
inline constexpr int kInfoTimeoutMs = 10'000;

// Owner: the REPL; its thread.
class ServerLink {
 public:
  struct Options {
    std::string host;
    std::uint16_t port = 0;
    std::string model;  // as requests name it; may be empty
  };
  struct Handler {
    std::function<void(const protocol::ServerEntry&)> on_token;
    std::function<void(const protocol::ServerEntry&)> on_loading;
  };
  enum class Outcome { kFinished, kCancelled };

  ServerLink(Options options, client::Interrupts& interrupts);

  // Connects if there is no connection, and requests MODEL_INFO without waiting for it.
  Result<void> connect();

  // Runs one stream to its end. The link chooses stream id and model of the message. A connection
  // that broke since the last request is made again, once.
  Result<Outcome> run(protocol::GenerateMessage message, const Handler& handler);
  Result<Outcome> run(protocol::ScoreMessage message, const Handler& handler);

  // Requests it again, and waits. Also an error if the server refuses or does not answer.
  Result<ServerInfo> ask_info();

  // The latest answer, if there is one.
  const std::optional<ServerInfo>& info() const { return info_; }
  std::string address() const;

 private:
  using Clock = std::chrono::steady_clock;

  template <typename Message>
  Result<Outcome> run_stream(Message message, const Handler& handler);
  // Receives until the stream `id` ends. `started` is set by the first entry.
  Result<Outcome> follow(StreamId id, const Handler& handler, bool& started);
  // Whether the entry is an answer to MODEL_INFO.
  bool take_info(const protocol::ServerEntry& entry);
  Result<void> send_info_request();
  void cancel(StreamId id);
  Result<ServerInfo> await_info();
  Error closed_unanswered(const Error& error) const;
  static int ms_until(Clock::time_point deadline);

  const Options options_;
  client::Interrupts& interrupts_;
  client::Client client_;
  StreamId next_id_ = 1;
  StreamId info_id_ = 0;  // of the MODEL_INFO in flight
  std::string info_error_;
  std::optional<ServerInfo> info_;
};

}  // namespace lmtp::tools
