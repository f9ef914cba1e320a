// The options as the command line gives them.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "serve_options.h"

namespace lmtp::tools {

// Options as text, before sizes and names are parsed.
struct RawOptions {
  ServeOptions options;
  int port = 8080;
  std::string listen;
  bool cuda = false;
  bool is_static = false;
  std::string cache_scope = "shared";
  std::string kv_cache;
  std::string swap_space;
  std::string score_cache = "64MiB";  // kDefaultScoreCacheBytes
  std::string aici_memory = "64MiB";  // of a controller
  std::string aici_total_memory = "2GiB";
  int aici_step_time_ms = 150;
  int aicirt_busy_wait_ms = 1;
  std::string aicirt_dialect = "auto";
  int aici_init_time_ms = 1000;
  std::string download_max;
  std::vector<std::string> lora_modules;
  bool enables_lora = false;
  std::string layout;
  std::vector<std::string> workers;  // of a balancer
  double worker_timeout_s = 10.0;
  double worker_stall_timeout_s = 300.0;
  std::string max_message_size = "16MiB";
  std::string max_write_queue = "16MiB";
  std::string max_buffer_bytes = "64MiB";
  std::string max_read_buffers = "256MiB";
  std::string max_write_queues = "256MiB";
  double shutdown_timeout_s = 30.0;
  std::string unload_after = "30m";
  std::string trace_limit = "256MiB";
  std::string log_level = "info";
  AdmissionPacing pacing;
  std::vector<std::string> metrics_aliases = {"vllm", "tgi"};
  std::string log_format = "text";
  std::string config;
  bool prints_config = false;
};

// For options that CLI11 passes as text: throws CLI11's error, which names the option.
std::int64_t size_option(const char* option, const std::string& text, std::int64_t low);

// Limits of the computation, of connections, of steps and of requests, and what concerns who
// operates it. `raw` outlives `app`.
void add_aici_options(CLI::App& app, RawOptions& raw);
void finish_aici_options(const RawOptions& raw, ServeOptions& options);
void add_text_options(CLI::App& app, ServeOptions& options);
void add_lora_options(CLI::App& app, RawOptions& raw);
void finish_lora_options(const RawOptions& raw, ServeOptions& options);
void add_limit_options(CLI::App& app, RawOptions& raw);
// Throws CLI11's error for limits that contradict each other.
void check_token_limits(const ServeOptions& options);
void add_connection_options(CLI::App& app, RawOptions& raw);
void add_operation_options(CLI::App& app, RawOptions& raw);
void add_scheduling_options(CLI::App& app, RawOptions& raw);
void add_api_options(CLI::App& app, RawOptions& raw);

}  // namespace lmtp::tools
