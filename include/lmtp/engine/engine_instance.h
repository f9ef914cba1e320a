// EngineInstance: the cheap, thread-safe handle by which sessions reach an engine.
#pragma once

#include <memory>
#include <vector>

#include "lmtp/base/result.h"
#include "lmtp/request/request.h"

namespace lmtp::engine {

class Engine;
struct EngineStats;

// Copyable; any thread. Stays valid after its engine has stopped: submit is then refused.
class EngineInstance {
 public:
  struct Inbox;  // the engine's command queue

  explicit EngineInstance(std::shared_ptr<Inbox> inbox) : inbox_(std::move(inbox)) {}

  // Queues the request for the engine's thread. After an error (queue full, engine stopped) no
  // event is sent for it, and `request` is unchanged.
  // REQUIRES: checked against the model's limits (check_request), key unique among live streams.
  Result<void> submit(Request&& request) const;
  // Queues the requests that waited for the model, as one command, so that its first step can batch
  // them. Requests beyond max_concurrent_requests are refused by an event. False if the engine has
  // stopped or memory is short; `requests` are then unchanged.
  bool submit_all(std::vector<Request>& requests) const;

  // Forks (Request::fork) of one stream: all are taken together, so that they begin with the same
  // tokens, or none and they are unchanged. REQUIRES: as submit().
  Result<void> submit_forks(std::vector<Request>& forks) const;
  // Queued behind what has been submitted. Where an error comes back no event does.
  Result<void> backtrack(Backtrack command) const;

  // Ends the stream with the error "cancelled", within one step. Nothing happens where it has
  // already ended; false where the engine has stopped. REQUIRES: called at most a few times for
  // each submitted stream.
  bool cancel(StreamKey key) const;

  // How long it takes until one of the requests that it can hold ends, by how long the last ones
  // took; 0 before the first has ended. For who finds no place.
  int expected_wait_ms() const;

  // A consistent copy; counters of a step are published before its events are delivered.
  EngineStats stats() const;

 private:
  Error refusal() const;

  std::shared_ptr<Inbox> inbox_;
};

}  // namespace lmtp::engine
