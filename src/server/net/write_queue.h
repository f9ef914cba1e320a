// What waits to be sent on one connection, be it WebSocket messages or an HTTP answer.
#pragma once

#include <cstddef>
#include <deque>
#include <string>

#include "connection.h"
#include "lmtp/base/memory_limit.h"
#include "lmtp/trace/trace.h"

namespace lmtp::server {

// It has a limit of its own and counts towards that of all connections: a client that does not read
// loses its connection and takes no time or memory from others. The connection does the writing:
// one operation at a time, between begin_write() and written().
// Owner: the connection, on its strand; num_bytes() and give_up() from any thread.
class WriteQueue {
 public:
  // All outlive it; trace may be null.
  WriteQueue(ConnectionRegistry& registry, MemoryLimit& all, std::size_t max_bytes, ConnectionId id,
             trace::Trace* trace)
      : registry_(registry), max_bytes_(max_bytes), id_(id), trace_(trace), part_(all) {}

  // False: more than max_bytes would wait. All but what is being written is dropped then, and the
  // caller must close the connection. If all connections together hold too much, the one that holds
  // most is closed, which may be this one.
  bool add(std::string text);

  bool empty() const { return texts_.empty(); }
  bool writing() const { return writing_; }

  // REQUIRES: !empty() && !writing(). What is returned stays until written().
  const std::string& begin_write();
  void written();

  // Drops all but what is being written.
  void clear();

  std::size_t num_bytes() const { return part_.bytes(); }
  // Its bytes no longer count, since the connection is being closed.
  void give_up() { part_.set(0); }

 private:
  bool is_traced() const { return trace_ != nullptr && trace_->is_on(); }
  void trace_write() const;

  ConnectionRegistry& registry_;
  const std::size_t max_bytes_;
  const ConnectionId id_;
  trace::Trace* const trace_;
  trace::Clock::time_point write_begin_;  // where it is traced
  MemoryLimit::Part part_;
  std::deque<std::string> texts_;  // the first one is being written if writing_
  std::size_t num_bytes_ = 0;
  bool writing_ = false;
};

}  // namespace lmtp::server
