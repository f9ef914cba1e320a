// The command line of lmtp-serve.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lmtp/base/log.h"
#include "lmtp/base/result.h"
#include "lmtp/catalog/model_options.h"

namespace lmtp::tools {

struct ServeOptions : catalog::ModelOptions {
  std::string model = "auto";  // "auto": any model that a request names
  bool on_tcp = true;          // at host and port
  std::string host = "127.0.0.1";
  std::uint16_t port = 8080;
  std::string unix_path;  // of a Unix socket; empty: none
  bool on_stdio = false;
  std::size_t max_message_bytes = std::size_t{16} << 20;
  std::size_t max_write_queue_bytes = std::size_t{16} << 20;
  std::size_t max_buffer_bytes = std::size_t{64} << 20;
  std::size_t max_read_buffers_bytes = std::size_t{256} << 20;
  std::size_t max_write_queues_bytes = std::size_t{256} << 20;
  int max_connections = 4096;
  int num_io_threads = 2;
  int shutdown_timeout_ms = 30'000;
  int max_models = 3;                        // auto
  std::int64_t unload_after_ms = 1'800'000;  // auto; 0: never
  std::vector<std::string> allowed_origins;
  std::vector<std::string> allowed_hosts;
  std::vector<std::string> model_dirs;
  std::vector<std::string> allow_download;  // auto: patterns of names; "*" where none was given
  log::Level log_level = log::Level::kInfo;

  bool is_auto() const { return model == "auto"; }
};

// The options, or the exit code if there is nothing to serve: 0 after --help and --version; 2 after
// an error, which has been written to stderr as one line.
std::variant<ServeOptions, int> parse_serve_options(int argc, const char* const* argv);

// "4096", "512MiB", "1.5GiB", "4G": KiB, MiB, GiB, TiB (also K, M, G, T) are powers of 1024; kB,
// MB, GB, TB are powers of 1000. Upper and lower case count the same.
Result<std::int64_t> parse_size(std::string_view text);

// "90", "90s", "30m", "1.5h", "2d" in milliseconds; "0" and "never" are 0.
Result<std::int64_t> parse_duration_ms(std::string_view text);

}  // namespace lmtp::tools
