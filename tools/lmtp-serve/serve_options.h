// The command line of lmtp-serve.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lmtp/balance/remote_models.h"
#include "lmtp/base/log.h"
#include "lmtp/base/result.h"
#include "lmtp/catalog/model_options.h"
#include "lmtp/server/server.h"
#include "lmtp/trace/trace.h"

namespace lmtp::tools {

struct ServeOptions : catalog::ModelOptions {
  std::string model = "auto";  // "auto": any model that a request names
  bool on_tcp = true;          // at host and port
  std::string host = "127.0.0.1";
  std::uint16_t port = 8080;
  std::string unix_path;     // of a Unix socket; empty: none
  int tcp_fd = -1;           // server::ServerOptions
  int unix_fd = -1;          // as well
  std::string tls_certfile;  // of TCP; empty: plain
  std::string tls_keyfile;   // empty: it is in tls_certfile
  bool on_stdio = false;
  std::size_t max_message_bytes = std::size_t{16} << 20;
  std::size_t max_write_queue_bytes = std::size_t{16} << 20;
  std::size_t max_buffer_bytes = std::size_t{64} << 20;
  std::size_t max_read_buffers_bytes = std::size_t{256} << 20;
  std::size_t max_write_queues_bytes = std::size_t{256} << 20;
  int max_connections = 4096;
  server::ApiLimits api;
  int max_connections_per_address = 0;      // 0: no limit
  double max_request_rate_per_address = 0;  // a second; 0: no limit
  server::MetricsAliases metrics_aliases;
  int num_io_threads = 2;
  int shutdown_timeout_ms = 30'000;
  int max_models = 3;                        // auto
  std::int64_t unload_after_ms = 1'800'000;  // auto; 0: never
  std::vector<std::string> api_keys;
  std::string api_key_file;
  bool insecure = false;
  bool aici_upload = false;         // server::ServerOptions
  bool allow_runtime_lora = false;  // as well
  bool log_prompts = false;
  bool no_ui = false;
  bool own_caches = false;
  trace::TraceOptions tracing;  // `path` empty: none; ModelOptions::trace is it once it is open
  std::vector<std::string> allowed_origins;
  std::vector<std::string> allowed_hosts;
  std::vector<std::string> model_dirs;
  std::vector<std::string> allow_download;   // auto: patterns of names; "*" where none was given
  balance::BalanceOptions balance;           // without workers: models are served here
  int num_children = 0;                      // --layout: servers that this one starts
  std::vector<std::string> child_arguments;  // of each of them, but for MODEL
  bool is_doctor = false;                    // says what is wrong, in the place of serving
  log::Level log_level = log::Level::kInfo;
  log::Format log_format = log::Format::kText;

  bool has_given_sockets() const { return tcp_fd >= 0 || unix_fd >= 0; }
  bool is_auto() const { return model == "auto"; }
  // What the named model is called in logs and on terminals.
  const std::string& shown_name() const {
    return served_names.empty() ? model : served_names.front();
  }
  bool has_layout() const { return num_children > 0; }
  bool is_balancer() const { return !balance.workers.empty(); }
};

// The options, or the exit code if there is nothing to serve: 0 after --help and --version; 2 after
// an error, which has been written to stderr as one line.
std::variant<ServeOptions, int> parse_serve_options(int argc, const char* const* argv);

}  // namespace lmtp::tools
