#include "serve_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <thread>
#include <utility>

#include "lmql_options.h"
#include "lmtp/base/text.h"
#include "lmtp/base/version.h"

namespace lmtp::tools {
namespace {

constexpr int kExitMistake = 2;
constexpr double kMaxSizeBytes = 1e15;

struct Unit {
  std::string_view name;
  double num_bytes;
};

constexpr double kKi = 1024.0;
constexpr std::array<Unit, 14> kUnits = {{{"", 1},
                                          {"b", 1},
                                          {"k", kKi},
                                          {"kib", kKi},
                                          {"m", kKi* kKi},
                                          {"mib", kKi* kKi},
                                          {"g", kKi* kKi* kKi},
                                          {"gib", kKi* kKi* kKi},
                                          {"t", kKi* kKi* kKi* kKi},
                                          {"tib", kKi* kKi* kKi* kKi},
                                          {"kb", 1e3},
                                          {"mb", 1e6},
                                          {"gb", 1e9},
                                          {"tb", 1e12}}};

constexpr double kMaxDurationS = 10 * 365 * 86'400.0;
constexpr std::array<std::pair<std::string_view, double>, 5> kDurations = {
    {{"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86'400}}};

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

// For options that CLI11 passes as text: throws CLI11's error, which names the option.
std::int64_t size_option(const char* option, const std::string& text, std::int64_t low) {
  const Result<std::int64_t> size = parse_size(text);
  if (!size) throw CLI::ValidationError(option, size.error().message);
  if (*size < low) {
    throw CLI::ValidationError(
        option, "'" + text + "' is too small; allowed are " + size_text(low) + " and more");
  }
  return *size;
}

// Options as text, before sizes and names are parsed.
struct RawOptions {
  ServeOptions options;
  int port = 8080;
  std::string listen;
  bool cuda = false;
  bool is_static = false;
  std::string kv_cache;
  std::string download_max;
  std::string max_message_size = "16MiB";
  std::string max_write_queue = "16MiB";
  std::string max_buffer_bytes = "64MiB";
  std::string max_read_buffers = "256MiB";
  std::string max_write_queues = "256MiB";
  double shutdown_timeout_s = 30.0;
  std::string unload_after = "30m";
  std::string log_level = "info";
};

void add_serving_options(CLI::App& app, RawOptions& raw) {
  ServeOptions& options = raw.options;
  app.add_option("MODEL", options.model,
                 "A model folder; 'demo', the small model that comes with the program; "
                 "random[:SHAPE[:SEED]], random weights (SHAPE: gpt2, gpt2-medium, "
                 "tinyllama-1.1b, llama-3-8b); a name on the Hugging Face hub, downloaded where it "
                 "is not in the local cache; or 'auto': any of these, loaded when a request names "
                 "it [auto]")
      ->type_name("");
  app.add_flag("--cuda", raw.cuda, "Compute on the first CUDA device (as --device cuda)");
  app.add_option("--device", options.device, "cpu, cuda or cuda:N")
      ->type_name("D")
      ->capture_default_str();
  app.add_option(
         "--dtype", options.dtype,
         "Type of the weights: float32, bfloat16 (bf16), int8 (8bit; CPU only), float16 (on a CPU "
         "float32), or auto: bfloat16 on a device; on a CPU float32, or bfloat16 where that would "
         "take more than half of the free memory")
      ->type_name("D")
      ->capture_default_str();
  app.add_option(
         "--context-length", options.context_length,
         "Tokens of the longest stream, prompt included; a model with longrope (Phi 3) whose "
         "short factors end before takes the long ones, for all streams [the model's own]")
      ->check(CLI::Range(1, 1 << 22))
      ->type_name("N");
  app.add_flag(
      "--force", options.force,
      "Serve a folder although it says, or its weights show, that it is more or other than "
      "the language model of its family; what was passed over is a warning");
  app.add_flag("--static", raw.is_static,
               "Serve the named model only; a named MODEL is static by itself");
  app.add_option("--host", options.host, "Address to listen on; the protocol has no authentication")
      ->type_name("H")
      ->capture_default_str();
  app.add_option("--port", raw.port, "Port to listen on; 0 is any free one")
      ->check(CLI::Range(0, 65535))
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--listen", raw.listen,
                 "A Unix socket to listen on, unix:PATH, which only this user may connect to; in "
                 "the place of TCP, unless --host or --port is given too")
      ->type_name("unix:PATH");
  app.add_flag(
      "--stdio", options.on_stdio,
      "Answer what comes on standard input, a message a line, on standard output; ends with "
      "its input. No socket is opened, and the log stays on standard error");
  app.add_option("--allow-origin", options.allowed_origins,
                 "A web page's origin that may connect, such as https://example.org; may be given "
                 "several times (pages of other origins are refused)")
      ->type_name("ORIGIN")
      ->allow_extra_args(false);
  app.add_option("--allow-host", options.allowed_hosts,
                 "A name that requests may call the server by, such as that of a proxy in front; "
                 "may be given several times (on loopback, unknown names are refused)")
      ->type_name("NAME")
      ->allow_extra_args(false);
}

void add_auto_options(CLI::App& app, RawOptions& raw) {
  ServeOptions& options = raw.options;
  app.add_option("--max-models", options.max_models,
                 "With auto: models loaded at a time; the one that was used least recently goes")
      ->check(CLI::Range(1, 64))
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--unload-after", raw.unload_after,
                 "With auto: a model that has been idle for so long is unloaded; 90s, 30m, 2h, or "
                 "0 or never")
      ->type_name("TIME")
      ->capture_default_str();
  app.add_option("--model-dir", options.model_dirs,
                 "A folder of model folders, by whose names they may be asked for; may be given "
                 "several times")
      ->type_name("DIR")
      ->allow_extra_args(false);
  app.add_flag("--allow-download", options.allow_download,
               "With auto and a --host beyond loopback: requests may make the server download "
               "models (on loopback they always may); --allow-download='org/*' none but those of "
               "such names, wherever it listens; may be given several times");
  app.add_option("--download-max", raw.download_max,
                 "Largest model that is downloaded, such as 20GB [no limit]")
      ->type_name("SIZE");
}

void add_limit_options(CLI::App& app, RawOptions& raw) {
  ServeOptions& options = raw.options;
  app.add_option("--threads", options.num_threads,
                 "Threads of the computation; 0 is one for each processor")
      ->check(CLI::Range(0, 1024))
      ->type_name("N")
      ->capture_default_str();
  app.add_option(
         "--kv-cache", raw.kv_cache,
         "Memory for keys and values, such as 512MiB or 4GiB; on a CPU it is taken as it is "
         "used [the smaller of 4GiB and a quarter of the free memory; on a device what is "
         "free beside the weights, less a margin]")
      ->type_name("SIZE");
  app.add_option("--max-batched-tokens", options.batch.max_tokens, "Tokens that a step computes")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--max-concurrent-requests", options.max_concurrent_requests,
                 "Requests held at a time; more are refused")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--max-message-size", raw.max_message_size,
                 "Longest message of a client; a longer one closes its connection")
      ->type_name("SIZE")
      ->capture_default_str();
  app.add_option("--max-write-queue", raw.max_write_queue,
                 "What may wait for a client that does not read; beyond it, it is closed")
      ->type_name("SIZE")
      ->capture_default_str();
  app.add_option(
         "--max-buffer-bytes", raw.max_buffer_bytes,
         "Token buffers of a connection, 4 bytes a token; all connections together may have "
         "four times as much")
      ->type_name("SIZE")
      ->capture_default_str();
  app.add_option("--max-read-buffers", raw.max_read_buffers,
                 "What unfinished messages of all clients together may take; beyond it, the client "
                 "whose message began first is closed, short ones left out")
      ->type_name("SIZE")
      ->capture_default_str();
  app.add_option("--max-write-queues", raw.max_write_queues,
                 "What may wait for all clients together; beyond it, the one that most waits for "
                 "is closed")
      ->type_name("SIZE")
      ->capture_default_str();
  app.add_option("--max-connections", options.max_connections,
                 "Connections open at a time; more are answered with 503")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--shutdown-timeout", raw.shutdown_timeout_s,
                 "Seconds that running requests get to finish after SIGTERM or SIGINT")
      ->check(CLI::Range(0.0, 86'400.0))
      ->type_name("S")
      ->capture_default_str();
  app.add_option("--log-level", raw.log_level, "trace, debug, info, warning, error or off")
      ->type_name("L")
      ->capture_default_str();
}

// The first option among the arguments that CLI11 does not know; the others may be its values.
void check_rest(const CLI::App& app, const std::string& model) {
  std::vector<std::string> rest = app.remaining();
  if (rest.empty()) return;
  if (model == "balance") rest = {model};
  const auto option = std::find_if(rest.begin(), rest.end(),
                                   [](const std::string& word) { return word.starts_with('-'); });
  throw CLI::ParseError(instead_of(option != rest.end() ? *option : rest.front()),
                        CLI::ExitCodes::ExtrasError);
}

// Refuses options that apply only to auto, or only to a named model.
void check_auto_options(const CLI::App& app, const RawOptions& raw) {
  if (raw.options.is_auto() && raw.is_static) {
    throw CLI::ValidationError("--static", "serves one named MODEL; with auto there is none");
  }
  for (const char* option : {"--max-models", "--unload-after", "--allow-download"}) {
    if (!raw.options.is_auto() && app.count(option) > 0) {
      throw CLI::ValidationError(option, "is for auto; a named MODEL is served alone and stays");
    }
  }
}

// Where requests come from.
void finish_transports(const CLI::App& app, const RawOptions& raw, ServeOptions& options) {
  for (const char* option : {"--host", "--port", "--listen", "--allow-origin", "--allow-host"}) {
    if (options.on_stdio && app.count(option) > 0) {
      throw CLI::ValidationError(option, "is for sockets, of which --stdio opens none");
    }
  }
  if (options.on_stdio) options.on_tcp = false;
  if (app.count("--listen") == 0) return;
  if (!raw.listen.starts_with(kUnixScheme) || raw.listen.size() == kUnixScheme.size()) {
    throw CLI::ValidationError(
        "--listen", "'" + raw.listen + "' is not unix:PATH; for TCP write --host and --port");
  }
  options.unix_path = raw.listen.substr(kUnixScheme.size());
  options.on_tcp = app.count("--host") + app.count("--port") > 0;
  for (const char* option : {"--allow-origin", "--allow-host"}) {
    if (!options.on_tcp && app.count(option) > 0) {
      throw CLI::ValidationError(option,
                                 "is for TCP, which --listen has taken the place of; "
                                 "give --host or --port too");
    }
  }
}

ServeOptions finish_options(const CLI::App& app, const RawOptions& raw) {
  ServeOptions options = raw.options;
  finish_transports(app, raw, options);
  options.port = static_cast<std::uint16_t>(raw.port);
  if (raw.cuda) options.device = "cuda";
  if (!raw.kv_cache.empty()) options.kv_cache_bytes = size_option("--kv-cache", raw.kv_cache, 1);
  options.max_message_bytes =
      static_cast<std::size_t>(size_option("--max-message-size", raw.max_message_size, 1024));
  options.max_write_queue_bytes =
      static_cast<std::size_t>(size_option("--max-write-queue", raw.max_write_queue, 64 * 1024));
  options.max_buffer_bytes =
      static_cast<std::size_t>(size_option("--max-buffer-bytes", raw.max_buffer_bytes, 0));
  // CLI11's value for a flag without a value.
  std::replace(options.allow_download.begin(), options.allow_download.end(), std::string("true"),
               std::string("*"));
  if (!raw.download_max.empty()) {
    options.download_bytes_max = size_option("--download-max", raw.download_max, 1);
  }
  // The limits of all together must not be less than those of a single message and queue.
  options.max_read_buffers_bytes =
      static_cast<std::size_t>(size_option("--max-read-buffers", raw.max_read_buffers,
                                           static_cast<std::int64_t>(options.max_message_bytes)));
  options.max_write_queues_bytes = static_cast<std::size_t>(
      size_option("--max-write-queues", raw.max_write_queues,
                  static_cast<std::int64_t>(options.max_write_queue_bytes)));
  for (const std::string& origin : options.allowed_origins) {
    const std::size_t host = origin.find("://") + 3;
    if (host > 3 && host < origin.size() && origin.find('/', host) == std::string::npos) continue;
    throw CLI::ValidationError("--allow-origin", "'" + origin +
                                                     "' is no origin; write "
                                                     "SCHEME://HOST or SCHEME://HOST:PORT");
  }
  options.shutdown_timeout_ms = static_cast<int>(std::lround(raw.shutdown_timeout_s * 1000));
  const Result<std::int64_t> unload_after = parse_duration_ms(raw.unload_after);
  if (!unload_after) throw CLI::ValidationError("--unload-after", unload_after.error().message);
  options.unload_after_ms = *unload_after;
  const Result<log::Level> level = log::parse_level(raw.log_level);
  if (!level) throw CLI::ValidationError(level.error().message);
  options.log_level = *level;
  const auto num_processors = static_cast<int>(std::thread::hardware_concurrency());
  options.num_io_threads = std::clamp(num_processors / 4, 2, 4);
  return options;
}

}  // namespace

Result<std::int64_t> parse_size(std::string_view text) {
  const std::string allowed =
      "'" + std::string(text) + "' is not a size; write 512MiB, 4GiB or a number of bytes";
  double number = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !(number >= 0.0)) return Error{ErrorCode::kInvalid, allowed};
  std::string_view rest(end, static_cast<std::size_t>(text.data() + text.size() - end));
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  const auto* const unit = std::find_if(
      kUnits.begin(), kUnits.end(), [&](const Unit& known) { return known.name == lower(rest); });
  if (unit == kUnits.end()) return Error{ErrorCode::kInvalid, allowed};
  const double num_bytes = number * unit->num_bytes;
  if (num_bytes > kMaxSizeBytes) {
    return Error{ErrorCode::kInvalid, "'" + std::string(text) + "' is too large"};
  }
  return static_cast<std::int64_t>(num_bytes);
}

Result<std::int64_t> parse_duration_ms(std::string_view text) {
  if (lower(text) == "never") return 0;
  const Error wrong{ErrorCode::kInvalid,
                    "'" + std::string(text) + "' is not a time; write 90s, 30m, 2h, 0 or never"};
  double number = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !(number >= 0.0)) return wrong;
  const std::string unit = lower({end, static_cast<std::size_t>(text.data() + text.size() - end)});
  const auto* const found = std::find_if(kDurations.begin(), kDurations.end(),
                                         [&](const auto& known) { return known.first == unit; });
  if (found == kDurations.end()) return wrong;
  const double seconds = number * found->second;
  if (seconds > kMaxDurationS) {
    return Error{ErrorCode::kInvalid, "'" + std::string(text) + "' is too long"};
  }
  // A tiny time must not be rounded to 0, "never".
  return seconds > 0.0 ? std::max<std::int64_t>(1, std::llround(seconds * 1000)) : 0;
}

std::variant<ServeOptions, int> parse_serve_options(int argc, const char* const* argv) {
  CLI::App app("lmtp-serve answers LMTP, the protocol of LMQL, from a language model.",
               "lmtp-serve");
  const std::string version = "lmtp-serve " + std::string(kVersion);
  app.set_version_flag("--version", version, "Print the version and exit");
  app.set_help_flag("-h,--help", "Print this and exit");
  app.allow_extras();  // check_rest gives better errors
  RawOptions raw;
  add_serving_options(app, raw);
  add_auto_options(app, raw);
  add_limit_options(app, raw);
  try {
    app.parse(argc, argv);
    check_rest(app, raw.options.model);
    check_auto_options(app, raw);
    return finish_options(app, raw);
  } catch (const CLI::Success& wanted) {
    return app.exit(wanted);
  } catch (const CLI::ParseError& mistake) {
    std::cerr << "lmtp-serve: " << mistake.what() << " (lmtp-serve --help lists the options)\n";
    return kExitMistake;
  }
}

}  // namespace lmtp::tools
