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

// The end of a stream by a token's finish_reason or by an ErrorEntry is its last event.
using StreamEvent =
    std::variant<protocol::TokenEntry, protocol::ErrorEntry, protocol::LoadingEntry>;

// Where one connection's events go: called once a step at most, with all events of all its streams.
// Owner: shared by the connection and its requests in flight. deliver() is called on the engine's
// thread and must not block: it posts to the connection's own strand.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void deliver(std::vector<StreamEvent> events) = 0;
};

struct Request {
  StreamKey key;
  std::shared_ptr<EventSink> sink;
  std::string model;  // as the client named it; loading notices echo it
  scheduler::SequenceKind kind = scheduler::SequenceKind::kGenerate;
  std::vector<TokenId> prompt;
  std::vector<TokenId> scored;      // Score only
  protocol::SamplingParams params;  // Generate only
};

}  // namespace lmtp::engine
