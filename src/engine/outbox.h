// Outbox: the events of an engine's streams, until they are delivered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/request/request.h"

namespace lmtp::engine {

// All that it keeps is used again in the next step, so that one like those before takes no memory.
// Owner: the Engine; its thread.
class Outbox {
 public:
  void add(ConnectionId connection, const std::shared_ptr<EventSink>& sink, StreamEvent&& event);

  bool empty() const { return outgoing_.empty() && lost_.empty(); }

  // Makes one delivery to each connection that has events, in their order, and then wakes those who
  // take them. Where one cannot be made (a sink threw), its events are lost: the connection is
  // returned, whose streams must not go on as if it had come; for those that ended in it an error
  // stays for the next call, and so does what began a sample or refused an edit. An exception
  // leaves everything for the next call. What is returned is valid until then.
  std::span<const ConnectionId> deliver();

 private:
  struct Delivery {
    ConnectionId connection = 0;
    std::shared_ptr<EventSink> sink;
    std::size_t num_events = 0;
    std::size_t end = 0;  // of its events, in grouped_
    bool failed = false;
    // Alone: the sinks of requests count what passes through them, that of an edit does not.
    bool is_of_edits = false;
  };
  struct Outgoing {
    std::size_t delivery = 0;
    StreamEvent event;
  };
  // What could not be delivered and has to be: the end of a stream, the beginning of a sample,
  // which has an end, and the answer to an edit.
  struct LostEnd {
    ConnectionId connection = 0;
    std::shared_ptr<EventSink> sink;
    StreamEvent event;  // a StreamError without its text, which takes memory
  };
  // A place of the hash table of this round's deliveries.
  struct Place {
    std::uint64_t round = 0;
    std::size_t delivery = 0;
  };

  Place& place_of(ConnectionId connection);
  std::size_t delivery_to(ConnectionId connection, const std::shared_ptr<EventSink>& sink);
  void grow();
  void group();
  void make(Delivery& delivery);
  void keep_lost_ends() noexcept;
  void add_lost_ends();

  std::vector<Outgoing> outgoing_;
  std::vector<LostEnd> lost_;  // of the rounds before, the last first
  std::vector<Delivery> deliveries_;
  std::vector<Place> places_ = std::vector<Place>(16);  // a power of two, at most half of it used
  std::uint64_t round_ = 1;                             // places of another one are empty
  // Of the round that is being delivered.
  std::vector<Delivery> sent_;
  std::vector<StreamEvent> grouped_;
  std::vector<std::shared_ptr<Waker>> wakers_;
  std::vector<ConnectionId> failed_;
};

}  // namespace lmtp::engine
