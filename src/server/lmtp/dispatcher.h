// From a client's text to the engine, and from the engine's events to text. No sockets.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "events.h"
#include "generation/controllers.h"
#include "generation/encoder.h"
#include "generation/intake.h"
#include "lmtp/base/runtime.h"
#include "lmtp/protocol/codec.h"
#include "lmtp/registry/models.h"
#include "lmtp/request/request.h"
#include "net/connection.h"
#include "peer.h"

namespace lmtp::server {

// Owner: the server, shared by all sessions. Any thread; a Peer is one thread's at a time.
class Dispatcher {
 public:
  // `models`, `connections` and `controllers` outlive the dispatcher.
  Dispatcher(registry::Models& models, std::string version, const ConnectionRegistry& connections,
             const ControllerRules& controllers);

  // Reads the long texts; until it is started they are refused.
  Encoder& encoder() { return encoder_; }

  // Acts on one text message and appends the messages to be sent at once, if any.
  // REQUIRES: `text` is valid UTF-8.
  void handle(std::string_view text, Peer& peer, Answers& answers);

  // Turns events of models into messages, and goes on with what has waited for a model.
  void on_events(std::span<StreamEvent> events, Peer& peer, Answers& answers);

  // Ends the streams whose deadlines have passed.
  void end_overdue(runtime::Clock::time_point now, Peer& peer, Answers& answers);

  // Answers a binary frame.
  static void handle_binary(Answers& answers);

 private:
  void handle(protocol::GenerateMessage& message, Peer& peer, Answers& answers);
  void handle(protocol::ScoreMessage& message, Peer& peer, Answers& answers);
  void handle(protocol::DecideMessage& message, Peer& peer, Answers& answers);
  void handle(protocol::ModelInfoMessage& message, Peer& peer, Answers& answers);
  void handle(protocol::CancelMessage& message, Peer& peer, Answers& answers);
  void handle(protocol::TokenizeMessage& message, Peer& peer, Answers& answers);
  void handle(protocol::DetokenizeMessage& message, Peer& peer, Answers& answers);
  void handle(protocol::BufferMessage& message, Peer& peer, Answers& answers);
  void handle(protocol::FreeMessage& message, Peer& peer, Answers& answers);
  void handle(protocol::ForkMessage& message, Peer& peer, Answers& answers);
  void handle(protocol::BacktrackMessage& message, Peer& peer, Answers& answers);
  void handle(protocol::ControllerMessage& message, Peer& peer, Answers& answers);
  void submit(Request request, Peer& peer, Answers& answers);

  // operations.cpp: what asks for more than the base protocol gives.
  void begin(Operation operation, Peer& peer, Answers& answers);
  void start(StreamId id, Peer& peer, Answers& answers);
  void advance(StreamId id, Peer& peer, Answers& answers);
  Requester requester(StreamId id, runtime::Clock::time_point arrival, Peer& peer) const;
  void submit_samples(StreamId id, Request request, int num_samples, const std::string& model_name,
                      Peer& peer, Answers& answers);
  // stream_rows.cpp
  void begin_rows(StreamId id, Request request, const std::string& model_name, Peer& peer,
                  Answers& answers);
  void submit_rows(StreamId id, Peer& peer, Answers& answers);
  void answer_rows(StreamId id, Peer& peer, Answers& answers);
  void free_buffer(const protocol::FreeMessage& message, Peer& peer, Answers& answers);
  void resume_deferred(StreamId id, Peer& peer, Answers& answers);
  void cancel(StreamId id, const Error& reason, Peer& peer, Answers& answers);
  // Ends what no model has: counts it, and answers.
  void fail(StreamId id, const Error& error, Peer& peer, Answers& answers);
  void end(StreamId id, const Error& error, bool no_model, Peer& peer, Answers& answers);
  Result<void> check_controller(const protocol::ControllerMessage& message, const Peer& peer) const;
  void count_refused(StreamId id, std::string_view verb, ErrorCode code, const Peer& peer);

  const ModelsByCaller models_;
  const std::string version_;
  protocol::BiasCache bias_cache_;
  const ConnectionRegistry& connections_;
  const ControllerRules& controllers_;
  Encoder encoder_;
};

}  // namespace lmtp::server
