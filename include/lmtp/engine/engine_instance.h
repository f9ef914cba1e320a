// EngineInstance: the cheap, thread-safe handle by which sessions reach an engine.
#pragma once

#include <memory>

#include "lmtp/base/result.h"
#include "lmtp/request/request.h"

namespace lmtp::engine {

class Engine;

// Copyable; any thread. Stays valid after its engine has stopped: submit is then refused.
class EngineInstance {
 public:
  struct Inbox;  // the engine's command queue

  explicit EngineInstance(std::shared_ptr<Inbox> inbox) : inbox_(std::move(inbox)) {}

  // Hands the request to the engine's thread. An error (queue full, engine stopped) means that no
  // event will come for it.
  // REQUIRES: checked against the model's limits (check_request), key unique among live streams.
  Result<void> submit(Request request) const;

  // Ends the stream with the error "cancelled", within one step. Nothing happens where it has
  // already ended. REQUIRES: called at most a few times for each submitted stream.
  void cancel(StreamKey key) const;

 private:
  std::shared_ptr<Inbox> inbox_;
};

}  // namespace lmtp::engine
