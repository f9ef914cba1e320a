// The live streams of one connection.
#pragma once

#include <cstddef>
#include <memory>
#include <unordered_map>

#include "lmtp/base/ids.h"
#include "lmtp/registry/stream_canceller.h"

namespace lmtp::server {

// Owner: the session, on its strand. What is taken for a model is
// bounded by its --max-concurrent-requests.
class StreamTable {
 public:
  explicit StreamTable(ConnectionId connection) : connection_(connection) {}
  StreamTable(const StreamTable&) = delete;
  StreamTable& operator=(const StreamTable&) = delete;

  ConnectionId connection() const { return connection_; }
  bool contains(StreamId id) const { return streams_.contains(id); }
  std::size_t size() const { return streams_.size(); }

  // REQUIRES: !contains(id).
  void add(StreamId id, std::shared_ptr<registry::StreamCanceller> canceller);
  // The stream has ended by itself.
  void erase(StreamId id) { streams_.erase(id); }

  // Asks its canceller once to end the stream; it stays in the table until its last event.
  // Nothing happens where there is none.
  void cancel(StreamId id);
  // The connection is gone: all are cancelled and forgotten.
  void cancel_all();

 private:
  struct Live {
    std::shared_ptr<registry::StreamCanceller> canceller;
    bool cancelled = false;
  };

  const ConnectionId connection_;
  std::unordered_map<StreamId, Live> streams_;
};

}  // namespace lmtp::server
