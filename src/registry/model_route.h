// ModelRoute: through which requests reach the engine of a model that is loaded.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "lmtp/base/result.h"
#include "lmtp/base/runtime.h"
#include "lmtp/engine/engine_instance.h"
#include "lmtp/registry/stream_canceller.h"
#include "lmtp/request/request.h"

namespace lmtp::registry {

using Clock = runtime::Clock;

// What a route asks of the registry. Any thread.
class RouteOwner : public StreamCanceller {
 public:
  // A route has no stream any more.
  virtual void became_idle() noexcept = 0;
};

class ModelRoute;

// Hands a request to a model that is ready: to its engine, as ModelRoute::submit() does; one that
// only waited for the model (kAwaitModel) is answered.
Result<bool> submit_to(ModelRoute& route, Request& request);

// Counts the streams of its engine, so that no model with streams is unloaded. Its lock is taken
// when a stream begins and when it ends, by the engine's thread as well, and held only for the
// counting.
// It accepts nothing before hand_over(), so that requests that waited come first.
// Owner: shared by the actor, the directory and the streams. Any thread.
class ModelRoute final : public StreamCanceller, public std::enable_shared_from_this<ModelRoute> {
 public:
  // max_requests: as check_share's.
  ModelRoute(engine::EngineInstance engine, std::size_t max_requests,
             std::shared_ptr<RouteOwner> owner);

  // True: taken, and moved from. False: the engine is gone or about to go, and the request is as it
  // was; the actor decides then. REQUIRES: checked against the model's limits.
  Result<bool> submit(Request& request);
  // Forks of a stream here, all of them or none. REQUIRES: as submit().
  Result<void> submit_forks(std::vector<Request>& forks);
  // Those that waited for the model, together, so that its first step has them all; from then on
  // others are taken as well. False: the engine has not taken them, and they are as they were.
  bool hand_over(std::vector<Request>& requests);
  // Undoes the submission of a request that the engine has given back unanswered.
  void release(Request& request);

  void cancel(StreamKey key) override;
  void cancel_later(StreamKey key) override;

  const engine::EngineInstance& engine() const { return engine_; }

  // From then on nothing is accepted; false, with no effect, while a stream is live.
  bool close_if_idle();

  struct Usage {
    int num_streams = 0;
    Clock::time_point last_used;  // the last submission or end
  };
  Usage usage() const;

 private:
  class CountingSink;

  Result<bool> enter(const Request& request);
  void count(ConnectionId share, int count);
  // keeps: recount() may follow, and forget_if_none() does.
  void uncount(ConnectionId share, int count, bool keeps = false) noexcept;
  void recount(ConnectionId share, int count) noexcept;
  void forget_if_none(ConnectionId share) noexcept;
  void wrap(Request& request);

  const engine::EngineInstance engine_;
  const std::size_t max_requests_;
  const std::shared_ptr<RouteOwner> owner_;

  mutable std::mutex mutex_;
  bool opened_ = false;
  bool closed_ = false;
  int num_streams_ = 0;
  std::unordered_map<ConnectionId, std::size_t> num_held_;  // without shares that have none
  Clock::time_point last_used_ = Clock::now();
};

}  // namespace lmtp::registry
