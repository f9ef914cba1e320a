// The memory of an answer that is kept until it is whole.
#pragma once

#include <cstddef>

#include "context.h"
#include "lmtp/base/memory_limit.h"
#include "lmtp/base/result.h"

namespace lmtp::server {

// Owner: the answer, on its connection's strand. `context` outlives it.
class HeldAnswer {
 public:
  explicit HeldAnswer(ServerContext& context)
      : max_bytes_(context.options.max_write_queue_bytes / 2), held_(context.write_queues) {}

  void add(std::size_t num_bytes) { num_bytes_ += num_bytes; }

  // It must fit into the queue of what waits to be written; escapes make it longer than it is here.
  Result<void> check_length() const;
  // The same, and counts towards what all connections hold, some at a time.
  Result<void> count();

 private:
  const std::size_t max_bytes_;
  std::size_t num_bytes_ = 0;
  MemoryLimit::Part held_;
};

}  // namespace lmtp::server
