// Outbox: the events of an engine's streams, until they are delivered.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/request/request.h"

namespace lmtp::engine {

// Owner: the Engine; its thread.
class Outbox {
 public:
  void add(ConnectionId connection, std::shared_ptr<EventSink> sink, StreamEvent event);

  bool empty() const { return outgoing_.empty(); }

  // Makes one delivery to each connection that has events, in their order. Where one cannot be made
  // (a sink threw), its events are lost: the connection is returned, whose streams must not go on
  // as if it had come, and for those that ended in it an error stays for the next call. An
  // exception leaves everything for the next call.
  std::vector<ConnectionId> deliver();

 private:
  struct Outgoing {
    ConnectionId connection = 0;
    std::shared_ptr<EventSink> sink;
    StreamEvent event;
    std::size_t delivery = 0;
  };
  std::vector<Outgoing> outgoing_;
};

}  // namespace lmtp::engine
