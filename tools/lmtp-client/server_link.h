// ServerLink: requests to one server, one at a time, for interactive use: connects when needed,
// reconnects after a restart of the server, shows loading notices; Ctrl-C ends only the stream.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "common/server_info.h"
#include "lmtp/base/result.h"
#include "lmtp/client/interrupts.h"
#include "lmtp/client/retrying_client.h"
#include "lmtp/protocol/message.h"

namespace lmtp::tools {

inline constexpr int kCancelTimeoutMs = 2000;  // for the server to confirm; else a new connection

// Owner: the REPL; its thread.
class ServerLink {
 public:
  struct Options {
    std::string host;
    std::uint16_t port = 0;
    std::string model;  // as requests name it; may be empty
    client::RetryOptions retry = {};
    client::Security security = {};
  };
  struct Handler {
    std::function<void(const protocol::ServerEntry&)> on_token;
    std::function<void(const protocol::ServerEntry&)> on_loading;
    // In the place of on_token for a stream with a controller: all that comes of it.
    std::function<void(const protocol::ServerEntry&)> on_controlled = {};
  };
  enum class Outcome { kFinished, kCancelled };

  ServerLink(Options options, client::Interrupts& interrupts);

  // Connects if there is no connection, and requests MODEL_INFO without waiting for it.
  Result<void> connect();

  // Runs one stream to its end. The link chooses stream id and model of the message.
  Result<Outcome> run(protocol::GenerateMessage message, const Handler& handler);
  Result<Outcome> run(protocol::ScoreMessage message, const Handler& handler);
  Result<Outcome> run(protocol::DecideMessage message, const Handler& handler);

  // Uploads, names or lists controllers, and waits for the answer, JSON. Also an error if the
  // server refuses, or after Ctrl-C.
  Result<std::string> ask(protocol::ControllerMessage message);

  // Requests it again, and waits. Also an error if the server refuses or does not answer.
  Result<ServerInfo> ask_info();

  // The latest answer, if there is one.
  std::optional<ServerInfo> info() const;
  std::string address() const;

 private:
  template <typename Message>
  Result<Outcome> run_stream(Message message, const Handler& handler);
  void cancel();
  Error with_hint(Error error) const;

  const Options options_;
  client::Interrupts& interrupts_;
  client::RetryingClient client_;
};

}  // namespace lmtp::tools
