// The live streams of one connection.
#pragma once

#include <chrono>
#include <compare>
#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>

#include "extended_stream.h"
#include "lmtp/base/ids.h"
#include "lmtp/base/runtime.h"
#include "lmtp/registry/stream_canceller.h"

namespace lmtp::server {

// Owner: the session, on its strand. What is taken for a model is bounded by its
// --max-concurrent-requests, what waits in the session by OperationLimits.
class StreamTable {
 public:
  struct Live {
    // Null where each sample has its own, and where it waits for a buffer or for the encoder.
    std::shared_ptr<registry::StreamCanceller> canceller;
    bool cancelled = false;
    std::unique_ptr<ExtendedStream> extended;  // null: a stream of the base protocol
    std::string model;                         // its lasting name (registry::Models)
    bool scores = false;                       // it is a SCORE
  };

  explicit StreamTable(ConnectionId connection) : connection_(connection) {}
  StreamTable(const StreamTable&) = delete;
  StreamTable& operator=(const StreamTable&) = delete;

  ConnectionId connection() const { return connection_; }
  bool contains(StreamId id) const { return streams_.contains(id); }
  // Null where there is none. Until it is erased.
  Live* find(StreamId id);
  std::size_t size() const { return streams_.size(); }

  // REQUIRES: !contains(id).
  Live& add(StreamId id, std::shared_ptr<registry::StreamCanceller> canceller, std::string model);
  Live& add(StreamId id, std::unique_ptr<ExtendedStream> extended);
  // The stream has ended by itself.
  void erase(StreamId id);

  // Asks its cancellers once to end the stream; it stays in the table until its last event.
  // Nothing happens where there is none.
  void cancel(StreamId id);
  // The connection is gone: all are cancelled and forgotten.
  void cancel_all();

  // The time by which a stream's first token, or its end, must have come.
  struct Deadline {
    runtime::Clock::time_point time;
    StreamId id = 0;
    bool of_first_token = false;

    auto operator<=>(const Deadline&) const = default;
  };
  std::optional<Deadline> next_deadline() const;
  // A token has come; or the stream is being ended, and no deadline matters any more.
  void met_first(StreamId id, ExtendedStream& stream);
  void met_all(StreamId id, ExtendedStream& stream);

 private:
  template <typename End>
  void end(StreamId id, const Live& live, const End& end_sample) const;

  const ConnectionId connection_;
  std::unordered_map<StreamId, Live> streams_;
  std::set<Deadline> deadlines_;
};

}  // namespace lmtp::server
