// Server: listens, speaks HTTP and WebSocket on one port and on a Unix socket, and hands requests
// to the models.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lmtp/base/batch_limits.h"
#include "lmtp/base/result.h"
#include "lmtp/base/runtime.h"
#include "lmtp/server/http.h"
#include "lmtp/trace/trace.h"

namespace lmtp::registry {
class Models;
}

namespace lmtp::server {

// A session over two file descriptors, one message a line. The descriptors outlive the server.
struct LineOptions {
  int in_fd = -1;
  int out_fd = -1;
  // How long requests may still take when the input has ended, from the latest output line on.
  std::chrono::milliseconds end_timeout{30'000};
  // Called once, on the session's thread: the input has ended and every request is answered or
  // end_timeout is over; or, with the error, the output cannot be written.
  std::function<void(const Result<void>&)> on_end;
};

// What one request over HTTP may ask for; named as TGI's options are.
struct ApiLimits {
  int max_concurrent_requests = kDefaultConcurrentRequests;  // of a model, for GET /info alone
  int max_best_of = 2;         // >= 1: sequences of which the best is answered
  int max_stop_sequences = 4;  // >= 0
  int max_top_n_tokens = 5;    // >= 0: alternatives of each token
  // Schemas to the letter: an object has any members beside those that its schema names.
  bool open_objects = false;
};

// The names of others under which GET /metrics shows the same numbers, beside our own.
struct MetricsAliases {
  bool vllm = true;
  bool tgi = true;
};

// How long a connection is waited for before it is closed, each > 0.
struct Timeouts {
  using Time = std::chrono::milliseconds;

  Time handshake{10'000};  // of TLS, and of a WebSocket
  // HTTP: one request's header, the idle time between two, and one answer that is sent whole.
  Time http{10'000};
  // One write of a streamed answer: as long as a WebSocket's client may be silent.
  Time stream_write{300'000};
  // HTTP: after an answer that ends the connection, what the client still sends is read for so
  // long.
  Time drain{2'000};
  // A WebSocket's client from which nothing comes for so long is gone; pings are sent at half of
  // it.
  Time idle{300'000};
  // A closing connection, to finish what is being written and say goodbye.
  Time close{3'000};
  // A client that does not read, to come back and read why it is closed, or what keeps the server
  // from reading on.
  Time slow_reader{10'000};
  // From a message's or body's first to its last byte, not counting the time that pacing holds it
  // back.
  Time message{30'000};
  // A stream of TGI's API that is silent for so long gets a comment, and again.
  Time keep_alive{15'000};

  bool operator==(const Timeouts&) const = default;
};

struct ServerOptions {
  bool on_tcp = true;  // at host and port
  std::string host = "127.0.0.1";
  std::uint16_t port = 8080;  // 0: any free one, see Server::port
  std::string unix_path;      // of a Unix socket; empty: none
  // Listening stream sockets that are open already, in the place of opening those: the server's own
  // from start() on. -1: none. host is then the address that it is bound to.
  int tcp_fd = -1;
  int unix_fd = -1;
  // Of TCP, PEM files; the key may be in the first as well. Empty: plain HTTP and WebSocket.
  std::string tls_certfile;
  std::string tls_keyfile;
  std::optional<LineOptions> lines;
  int num_io_threads = 2;  // [1, 4]
  std::size_t max_message_bytes = std::size_t{16} << 20;
  std::size_t max_write_queue_bytes = std::size_t{16} << 20;  // a connection; beyond it is closed
  // Totals of all connections; beyond one of them, the connection with the oldest unfinished
  // message or the longest queue is closed.
  std::size_t max_read_buffers_bytes = std::size_t{256} << 20;
  std::size_t max_write_queues_bytes = std::size_t{256} << 20;
  // Of the token buffers of a connection, and of all together; beyond it BUFFER is refused.
  std::size_t max_buffer_bytes = std::size_t{64} << 20;
  std::size_t max_buffers_bytes = std::size_t{256} << 20;
  // Of what all connections have that waits in their sessions for a model, or for a BUFFER: text,
  // ids, and the buffers that they name. More is refused.
  std::size_t max_waiting_bytes = std::size_t{128} << 20;
  Timeouts timeouts;
  // The rate, over all connections, at which messages are read beyond their first MiB. Reading,
  // validating and unmasking at this rate takes a sixth of a core.
  std::int64_t paced_bytes_per_second = std::int64_t{64} << 20;
  int max_connections = 4096;
  ApiLimits api;
  // Of one IPv4 address or IPv6 /64, 0: no limit. Requests are HTTP's, the upgrade to a WebSocket
  // among them, and new connections, whose first request they are; a second's on average, in bursts
  // of what ten seconds allow.
  int max_connections_per_address = 0;
  double max_request_rate_per_address = 0;
  MetricsAliases metrics_aliases;
  // Allowed values of the Origin header besides the server's own: scheme://host[:port].
  std::vector<std::string> allowed_origins;
  // Allowed values of the Host header besides the server's own addresses. If there are any, other
  // values are refused on addresses beyond loopback, too.
  std::vector<std::string> allowed_hosts;
  // Keys that requests over sockets must have, each with all rights; and a file of keys, with their
  // rights and limits (docs/security.md). Without either nobody is asked for a key.
  std::vector<std::string> api_keys;
  std::string api_key_file;
  // With keys: no key's requests find the prefixes and scores of others.
  bool own_caches = false;
  bool aici = false;                // models run controllers, as MODEL_INFO says
  bool aici_upload = false;         // controllers may be uploaded beyond loopback
  bool allow_runtime_lora = false;  // requests may load adapters and unload them
  bool ui = true;                   // GET /ui is there
  bool insecure = false;            // listens beyond loopback without keys
  bool log_prompts = false;  // the beginning of each prompt stands in its request's line of the log
  std::string version;       // for GET / and MODEL_INFO
  std::shared_ptr<trace::Trace> trace;  // of what is written to connections; null: none
};

// Owner: main. start, stop and the destructor from one thread.
class Server {
 public:
  // `models` outlives the server.
  Server(ServerOptions options, registry::Models& models);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // The server's HTTP routes; more may be added before start().
  HttpRoutes& routes();

  // Reads keys and certificates, and opens the sockets: who connects waits until start(). An error
  // names the file or the address, and the remedy. Once, before start().
  Result<void> open();

  // Starts the io threads; opens the sockets where open() has not.
  Result<void> start();

  // Reads again what may change while it runs: the certificate and its key, for connections from
  // now on, and the file of keys. An error names the file and the remedy, and what was read before
  // stays. The thread of start().
  Result<void> reload();

  // Calls it on an io thread: it shows that one is free. Not where the server is not started, or
  // stopped before. Any thread.
  void post(std::function<void()> task);

  // The TCP port that was opened.
  std::uint16_t port() const;

  // No new connections once it returns; those that are open go on. REQUIRES: started; not an io
  // thread.
  void stop_accepting();

  // Closes what is open (code 1001) and joins the io threads. Connections get until `deadline` to
  // take what is queued for them and the goodbye, and no longer than their close timeout.
  // Idempotent.
  void stop(runtime::Clock::time_point deadline);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmtp::server
