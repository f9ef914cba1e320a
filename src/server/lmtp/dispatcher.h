// From a client's text to the engine, and from the engine's events to text. No sockets.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/protocol/codec.h"
#include "lmtp/registry/registry.h"
#include "lmtp/request/request.h"
#include "net/connection.h"
#include "stream_table.h"

namespace lmtp::server {

// Unknown keys of one connection that are logged.
inline constexpr std::size_t kLoggedKeysMax = 32;

// What the dispatcher knows of one connection. Owner: the session, on its strand.
struct Peer {
  explicit Peer(ConnectionId id) : streams(id) {}

  StreamTable streams;
  std::shared_ptr<EventSink> sink;  // where its streams' events go
  // Sends a message that is ready later than the call it answers. Any thread; a connection that is
  // gone by then gets nothing.
  std::function<void(std::string)> send_later;
  // Keys that were ignored and have stood in the log; at most kLoggedKeysMax.
  std::vector<std::string> logged_keys;
};

// Owner: the server, shared by all sessions. Any thread; a Peer is one thread's at a time.
class Dispatcher {
 public:
  // `models` and `connections` outlive the dispatcher.
  Dispatcher(registry::Registry& models, std::string version,
             const ConnectionRegistry& connections);

  // Acts on one text message and appends the messages to be sent at once, if any.
  // REQUIRES: `text` is valid UTF-8.
  void handle(std::string_view text, Peer& peer, std::vector<std::string>& answers);

  // Answers a binary frame.
  static void handle_binary(std::vector<std::string>& answers);

 private:
  using Answers = std::vector<std::string>;

  void handle(protocol::GenerateMessage& message, Peer& peer, Answers& answers);
  void handle(protocol::ScoreMessage& message, Peer& peer, Answers& answers);
  void handle(protocol::ModelInfoMessage& message, Peer& peer, Answers& answers);
  void handle(protocol::CancelMessage& message, Peer& peer, Answers& answers);
  void submit(Request request, Peer& peer, Answers& answers);
  void log_unknown_keys(const std::vector<std::string>& keys, Peer& peer);

  registry::Registry& models_;
  const protocol::LimitsOf limits_of_;
  const std::string version_;
  protocol::BiasCache bias_cache_;
  std::atomic<std::int64_t> next_log_ms_ = 0;
  const ConnectionRegistry& connections_;
};

// The events of one step of one connection as messages: at most one TOKEN and one MSG of notices,
// and a MSG for each stream whose model could not be had. Streams that end leave the table; events
// of streams that are not in it are dropped.
void append_events(std::vector<StreamEvent> events, StreamTable& streams,
                   std::vector<std::string>& messages);

}  // namespace lmtp::server
