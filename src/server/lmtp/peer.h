// What the dispatcher knows of one connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "buffers.h"
#include "lmtp/base/memory_limit.h"
#include "lmtp/protocol/message.h"
#include "lmtp/request/caller.h"
#include "lmtp/request/event.h"
#include "lmtp/server/server.h"
#include "stream_table.h"

namespace lmtp::server {

// Operations of one connection that wait for a BUFFER before them.
inline constexpr std::size_t kDeferredMax = 1024;
// CONTROLLERs of one connection that a runtime has: each may hold an upload.
inline constexpr int kControllersMax = 8;

// Owner: the server's context, shared by all connections. Any thread.
struct OperationLimits {
  explicit OperationLimits(const ServerOptions& options)
      : api(options.api),
        max_buffer_bytes(options.max_buffer_bytes),
        max_answer_bytes(options.max_write_queue_bytes / 2),
        buffers(options.max_buffers_bytes),
        waiting(options.max_waiting_bytes) {}

  const ApiLimits api;
  const std::size_t max_buffer_bytes;  // of the buffers of one connection
  const std::size_t max_answer_bytes;  // of an answer to TOKENIZE or DETOKENIZE
  MemoryLimit buffers;
  MemoryLimit waiting;
};

// Owner: the session, on its strand.
struct Peer {
  Peer(ConnectionId id, OperationLimits& limits_in)
      : limits(limits_in),
        streams(id),
        buffers(limits.max_buffer_bytes, limits.buffers),
        waiting(std::make_shared<MemoryLimit::Part>(limits.waiting)) {}

  OperationLimits& limits;
  StreamTable streams;
  Buffers buffers;
  std::shared_ptr<MemoryLimit::Part> waiting;  // its WaitingOperations
  std::uint64_t num_encodings = 0;             // so far
  // The BUFFER that waits for its model, and what has come since and concerns buffers: it is done
  // in the order of the messages.
  std::optional<StreamId> awaiting_buffer;
  std::deque<std::variant<StreamId, protocol::FreeMessage>> deferred;

  std::shared_ptr<const Caller> caller;
  std::shared_ptr<EventSink> sink;  // where its streams' events go
  // Sends a message that is ready later than the call it answers. Any thread; a connection that is
  // gone by then gets nothing.
  std::function<void(std::string)> send_later;
  // Its CONTROLLERs that are under way each hold one more reference.
  std::shared_ptr<int> controllers = std::make_shared<int>();
};

}  // namespace lmtp::server
