// What all connections of one server share.
#pragma once

#include <boost/asio/io_context.hpp>
#include <ctime>
#include <string>
#include <utility>

#include "access/key_ring.h"
#include "access/tickets.h"
#include "generation/controllers.h"
#include "generation/generation.h"
#include "lmtp/base/memory_limit.h"
#include "lmtp/dispatcher.h"
#include "lmtp/server/http.h"
#include "lmtp/server/server.h"
#include "net/address_limits.h"
#include "net/connection.h"
#include "net/mailroom.h"
#include "net/read_pace.h"
#include "net/tls_files.h"
#include "responses/store.h"

namespace lmtp::server {

// Held by shared_ptr by the server and by every connection, whose sockets need the io_context until
// the last reference to them is gone (an engine may hold one for a moment longer than the server).
struct ServerContext {
  ServerContext(ServerOptions options_in, registry::Models& models)
      : options(std::move(options_in)),
        address_limits(options.max_connections_per_address, options.max_request_rate_per_address),
        keys(options.api_keys, options.api_key_file, options.own_caches),
        operation_limits(options),
        controllers{.are_run = options.aici},
        dispatcher(models, options.version, registry, controllers),
        generation{ModelsByCaller(models), dispatcher.encoder(), operation_limits.waiting},
        read_buffers(options.max_read_buffers_bytes),
        write_queues(options.max_write_queues_bytes),
        read_pace(options.paced_bytes_per_second),
        tls(options.tls_certfile, options.tls_keyfile),
        mailroom(io, options.num_io_threads),
        io(options.num_io_threads) {}
  ~ServerContext() { mailroom.clear(); }  // of mail that knows its connection's strand
  ServerContext(const ServerContext&) = delete;
  ServerContext& operator=(const ServerContext&) = delete;

  const ServerOptions options;
  AddressLimits address_limits;  // outlives the registry's places
  KeyRing keys;
  Tickets tickets;               // POST /ui/ticket
  log::RateLimited refused_log;  // of requests that no handler gets
  ConnectionRegistry registry;
  OperationLimits operation_limits;
  ControllerRules controllers;
  Dispatcher dispatcher;
  GenerationContext generation;
  ResponseStore responses;  // of /v1/responses
  HttpRoutes routes;        // not changed once the io threads run
  std::string openapi;      // GET /openapi.json answers it; set before the io threads run
  const std::time_t started = std::time(nullptr);  // seconds since 1970
  MemoryLimit read_buffers;
  MemoryLimit write_queues;
  ReadPace read_pace;
  TlsFiles tls;
  bool on_loopback = false;  // what the listener is bound to; set before the io threads run
  Mailroom mailroom;         // outlives what it has posted
  boost::asio::io_context io;
};

}  // namespace lmtp::server
