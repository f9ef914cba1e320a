// Turn: one change of the pool's state.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "lmtp/request/event.h"
#include "lmtp/request/request.h"
#include "remote_stream.h"

namespace lmtp::balance {

// Holds the pool's lock. In the end what it tells is delivered, one delivery for each connection,
// so that a stream's events stay in order whichever threads they come from; then the lock is
// released; and then what has ended is destroyed, since that may come back to the pool.
class Turn {
 public:
  explicit Turn(std::mutex& mutex) : lock_(mutex) {}
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  void tell(const Request& request, StreamEvent event);
  void bury(std::shared_ptr<RemoteStream> stream) { ended_.push_back(std::move(stream)); }
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
