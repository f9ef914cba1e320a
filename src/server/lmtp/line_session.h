// LMTP over two descriptors, such as standard input and output: a message a line, both ways.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "line_transport.h"
#include "lmtp/base/result.h"
#include "lmtp/base/runtime.h"
#include "lmtp/server/server.h"

namespace lmtp::server {

struct ServerContext;

// Reads lines, has the dispatcher act on them, and writes what comes, on a thread of its own; the
// limits are those of a WebSocket. What cannot be written yet waits in a queue: while it is half
// full no line is read, and beyond its limit the session ends.
// Owner: the server. All from one thread.
class LineSession {
 public:
  // The context outlives it, and what the transport reads and writes does.
  LineSession(ServerContext& context, LineOptions options,
              std::shared_ptr<LineTransport> transport);
  ~LineSession();
  LineSession(const LineSession&) = delete;
  LineSession& operator=(const LineSession&) = delete;

  void start();
  // No further line is read.
  void stop_reading();
  // Joins the thread. What is there is still written, until `deadline`. Idempotent.
  void stop(runtime::Clock::time_point deadline);

 private:
  class Loop;

  const std::unique_ptr<Loop> loop_;
  runtime::Thread thread_;
};

}  // namespace lmtp::server
