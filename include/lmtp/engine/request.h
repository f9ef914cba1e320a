// What goes into an engine and what comes out of it.
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/protocol/message.h"
#include "lmtp/scheduler/sequence.h"

namespace lmtp::engine {

// The end of a stream whose model could not be had. The connection is told as well as the stream:
// LMQL takes one of the two for the answer.
struct ModelFailure {
  StreamId stream_id = 0;
  std::string error;
};

// The end of a stream by a token's finish_reason, by an ErrorEntry or by a ModelFailure is its last
// event.
using StreamEvent =
    std::variant<protocol::TokenEntry, protocol::ErrorEntry, ModelFailure, protocol::LoadingEntry>;

// Whether nothing comes after it on its stream.
bool is_last(const StreamEvent& event);

// Where one connection's events go: called once a step at most, with all events of all its streams.
// Owner: shared by the connection and its requests in flight. deliver() is called on the thread of
// an engine, a loader or whoever cancels, also within their locks: it must neither block nor call
// back nor end the life of anything that has streams. It posts to the connection's own strand.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void deliver(std::vector<StreamEvent> events) = 0;
};

struct Request {
  StreamKey key;
  std::shared_ptr<EventSink> sink;
  std::string model;  // as the client named it; loading notices echo it
  // Whether connections besides its own are open: it may then not take all places for itself.
  bool others_connected = false;
  scheduler::SequenceKind kind = scheduler::SequenceKind::kGenerate;
  std::vector<TokenId> prompt;
  std::vector<TokenId> scored;      // Score only
  protocol::SamplingParams params;  // Generate only
};

}  // namespace lmtp::engine
