// What all connections of one server share.
#pragma once

#include <boost/asio/io_context.hpp>
#include <utility>

#include "lmtp/dispatcher.h"
#include "lmtp/server/http.h"
#include "lmtp/server/server.h"
#include "net/connection.h"
#include "net/memory_limit.h"
#include "net/read_pace.h"

namespace lmtp::server {

// Held by shared_ptr by the server and by every connection, whose sockets need the io_context until
// the last reference to them is gone (an engine may hold one for a moment longer than the server).
struct ServerContext {
  ServerContext(ServerOptions options_in, registry::Registry& models)
      : options(std::move(options_in)),
        operation_limits(options),
        dispatcher(models, options.version, registry),
        read_buffers(options.max_read_buffers_bytes),
        write_queues(options.max_write_queues_bytes),
        read_pace(options.paced_bytes_per_second),
        io(options.num_io_threads) {}

  const ServerOptions options;
  ConnectionRegistry registry;
  OperationLimits operation_limits;
  Dispatcher dispatcher;
  HttpRoutes routes;  // not changed once the io threads run
  MemoryLimit read_buffers;
  MemoryLimit write_queues;
  ReadPace read_pace;
  bool on_loopback = false;  // what the listener is bound to; set before the io threads run
  boost::asio::io_context io;
};

}  // namespace lmtp::server
