// Turn: one change of the pool's state.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "lmtp/request/event.h"
#include "lmtp/request/request.h"
#include "remote_stream.h"

namespace lmtp::balance {

// Holds the pool's lock. Its destructor delivers the queued events, one delivery for each
// connection, so that a stream's events stay in order whichever threads they come from; then it
// releases the lock; and then it destroys what has ended, since that may come back to the pool.
class Turn {
 public:
  explicit Turn(std::mutex& mutex) : lock_(mutex) {}
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  void queue_event(const Request& request, StreamEvent event);
  void defer_destroy(std::shared_ptr<RemoteStream> stream) { ended_.push_back(std::move(stream)); }
  std::unique_lock<std::mutex>& lock() { return lock_; }

 private:
  struct Delivery {
    ConnectionId connection = 0;
    std::shared_ptr<EventSink> sink;
    std::vector<StreamEvent> events;
  };

  std::vector<std::shared_ptr<RemoteStream>> ended_;
  std::vector<Delivery> deliveries_;
  std::unique_lock<std::mutex> lock_;
};

}  // namespace lmtp::balance
