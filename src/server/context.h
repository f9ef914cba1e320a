// What all connections of one server share.
#pragma once

#include <boost/asio/io_context.hpp>

#include "connection.h"
#include "dispatcher.h"
#include "lmtp/base/log.h"
#include "lmtp/engine/model_manager.h"
#include "lmtp/server/server.h"
#include "memory_limit.h"
#include "read_pace.h"

namespace lmtp::server {

// Held by shared_ptr by the server and by every connection, whose sockets need the io_context until
// the last reference to them is gone (an engine may hold one for a moment longer than the server).
struct ServerContext {
  ServerContext(ServerOptions options_in, engine::ModelManager& models_in)
      : options(std::move(options_in)),
        models(models_in),
        dispatcher(models_in, options.version),
        read_buffers(options.max_read_buffers_bytes),
        write_queues(options.max_write_queues_bytes),
        io(options.num_io_threads) {}

  const ServerOptions options;
  const engine::ModelManager& models;
  Dispatcher dispatcher;
  ConnectionRegistry registry;
  MemoryLimit read_buffers;
  MemoryLimit write_queues;
  ReadPace read_pace;
  log::Repeated closed_log;
  bool on_loopback = false;  // what the listener is bound to; set before the io threads run
  boost::asio::io_context io;
};

}  // namespace lmtp::server
