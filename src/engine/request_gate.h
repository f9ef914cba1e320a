// RequestGate: where the requests for one model go. While the model is not there they wait at the
// gate and are told how far it is; then the gate hands them to the engine and counts those alive.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lmtp/engine/engine.h"
#include "lmtp/engine/engine_instance.h"
#include "lmtp/engine/stream_owner.h"
#include "lmtp/request/request.h"

namespace lmtp::engine {

// Owner: shared by the manager's tables, the loader and the streams. Any thread. Events are
// delivered on the calling thread and within the gate's lock, so that none comes after a stream's
// last one, be that the gate's or the engine's.
//
// kWaiting -> kOpen -> kClosed; kWaiting -> kForwarding or kClosed.
class RequestGate final : public StreamOwner, public std::enable_shared_from_this<RequestGate> {
 public:
  using Clock = std::chrono::steady_clock;

  // `max_requests`: that wait here; of one connection among others, waiting and running, three
  // quarters of it. `on_unused` is called, outside the lock, when the last request of the gate has
  // ended or left.
  RequestGate(std::size_t max_requests, std::function<void()> on_unused);

  enum class Outcome { kTaken, kRefused, kClosed };
  struct Answer {
    Outcome outcome = Outcome::kTaken;
    Error error;  // kRefused
  };
  // kTaken: the request has been moved from. kClosed: its model is gone since this gate was found;
  // look it up again, the request is as it was.
  Answer submit(Request& request);
  void cancel(StreamKey key) override;

  // The model has been found: requests that it cannot serve are refused, now and from now on.
  void set_limits(const ModelLimits& limits);
  // Of the download and the loading together; never goes back.
  void tell_progress(int percent);
  // The model is there: those who wait are handed to it. REQUIRES: set_limits was called.
  void open(const EngineInstance& engine);
  // It is the same model as that gate's: those who wait move there. False where that gate has
  // closed: they still wait here. REQUIRES: `to` is the gate of a model and forwards to no other.
  bool forward_to(std::shared_ptr<RequestGate> to);
  // It will not come: those who wait are told so.
  void fail(const Error& error);
  // The server stops: those who wait are told so.
  void shut(const Error& error);

  // Its model is gone: whoever comes looks it up again. What the engine has, it ends.
  void close();

  // Closes a waiting gate where nobody waits; false where somebody does, or it waits no longer.
  bool close_if_deserted();
  // Closes an open gate where no stream is alive.
  bool close_if_idle();

  struct Usage {
    std::size_t num_waiting = 0;
    int num_alive = 0;            // handed to the engine and not yet ended
    Clock::time_point last_used;  // the last submission or end; now where it is not yet open
    int percent = 0;
  };
  Usage usage() const;

 private:
  class CountingSink;
  enum class State { kWaiting, kOpen, kForwarding, kClosed };
  using MakeEvent = std::function<StreamEvent(const Request&)>;

  using Limits = std::shared_ptr<const ModelLimits>;

  void set_limits(Limits limits);

  // With the lock held. passed: limits that the request has been checked against, or null.
  Answer take(Request& request, const Limits& passed);
  Answer hand_over(Request& request);
  Answer keep(Request& request);
  Result<void> check_share(const Request& request) const;
  void uncount(ConnectionId connection, int count);
  void forget_waiting(const Request& request);
  void move_waiting_to(RequestGate& to);
  void tell_waiting(const MakeEvent& make_event);

  void close_waiting(const MakeEvent& last_event);
  void end_streams(ConnectionId connection, int count);
  // Ends of which nobody could be told: they come again.
  void take_back(ConnectionId connection, int count);

  const std::size_t max_requests_;
  const std::function<void()> on_unused_;

  mutable std::mutex mutex_;
  State state_ = State::kWaiting;
  std::vector<Request> waiting_;  // in order
  std::size_t waiting_bytes_ = 0;
  // Of each connection that has any: requests that wait, or that the engine has and has not ended.
  std::unordered_map<ConnectionId, std::size_t> num_held_;
  Limits limits_;
  std::optional<EngineInstance> engine_;  // kOpen
  std::shared_ptr<RequestGate> target_;   // kForwarding
  int num_alive_ = 0;
  int percent_ = 0;
  int told_percent_ = 0;
  Clock::time_point next_notice_;
  Clock::time_point last_used_;
};

}  // namespace lmtp::engine
