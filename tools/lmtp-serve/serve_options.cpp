#include "serve_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <thread>
#include <utility>

#include "balance_options.h"
#include "common/completion.h"
#include "common/help_format.h"
#include "config_file.h"
#include "environment_options.h"
#include "foreign_options.h"
#include "keygen.h"
#include "layout_options.h"
#include "lmtp/base/text.h"
#include "lmtp/base/utf8.h"
#include "lmtp/base/version.h"
#include "option_values.h"
#include "raw_options.h"

namespace lmtp::tools {

std::int64_t size_option(const char* option, const std::string& text, std::int64_t low) {
  const Result<std::int64_t> size = parse_size(text);
  if (!size) throw CLI::ValidationError(option, size.error().message);
  if (*size < low) {
    throw CLI::ValidationError(
        option, "'" + text + "' is too small; allowed are " + size_text(low) + " and more");
  }
  return *size;
}

namespace {

constexpr int kExitMistake = 2;
constexpr const char* kModelVariable = "LMTP_DEFAULT_MODEL";
constexpr const char* kAutoOptions[] = {"--max-models", "--unload-after", "--allow-download"};

// As vLLM has it: a number alone is GiB.
std::int64_t swap_space_of(const std::string& text) {
  const bool is_number = text.find_first_not_of("0123456789.") == std::string::npos;
  return size_option("--swap-space", is_number ? text + "GiB" : text, 0);
}

// All of it is reserved at the start.
std::int64_t score_cache_of(const std::string& text) {
  constexpr std::int64_t kMost = std::int64_t{16} << 30;
  const std::int64_t size = size_option("--score-cache", text, 0);
  if (size <= kMost) return size;
  throw CLI::ValidationError(
      "--score-cache", "'" + text + "' is too large; allowed are at most " + size_text(kMost));
}

void add_serving_options(CLI::App& app, RawOptions& raw) {
  ServeOptions& options = raw.options;
  app.add_option("MODEL", options.model,
                 "A model folder; 'demo', the small model that comes with the program; "
                 "random[:SHAPE[:SEED]], random weights (SHAPE: gpt2, gpt2-medium, "
                 "tinyllama-1.1b, llama-3-8b, "
                 "qwen3-30b-a3b, gpt-oss-20b); a name on the Hugging Face hub, downloaded where it "
                 "is not in the local cache; or 'auto': any of these, loaded when a request names "
                 "it")
      ->type_name("")
      ->capture_default_str();
  app.add_flag("--cuda", raw.cuda, "Compute on the first CUDA device (as --device cuda)");
  app.add_option("--device", options.device, "cpu, cuda or cuda:N")
      ->type_name("D")
      ->capture_default_str();
  app.add_option("--dtype", options.dtype,
                 "Type of the weights: float32, bfloat16 (bf16), int8 (8bit), int4 (4bit, by "
                 "groups of 32), "
                 "float16 (on a CPU float32), or auto: bfloat16 on a device; on a CPU "
                 "float32, or bfloat16 where that would take more than half of the free memory")
      ->type_name("D")
      ->capture_default_str();
  app.add_option(
         "--context-length,--max-model-len,--ctx-size,-c", options.context_length,
         "Tokens of the longest stream, prompt included; a model with longrope (Phi 3) whose "
         "short factors end before takes the long ones, for all streams [the model's own]")
      ->check(CLI::Range(1, 1 << 22))
      ->type_name("N");
  app.add_flag(
      "--force", options.force,
      "Serve a folder although it says, or its weights show, that it is more or other than "
      "the language model of its family; what was passed over is a warning");
  app.add_option("--tie-embeddings", options.tie_embeddings,
                 "Whether the output head is the token embedding, whatever config.json and the "
                 "weights say [by them]")
      ->type_name("true|false");
  add_text_options(app, raw.options);
  app.add_option(
         "--served-model-name,--alias,-a", options.served_names,
         "What clients are told that the named MODEL is called, in the place of its path or "
         "name on the hub, by which it may be asked for as well; may be given several times: "
         "it answers to all, and the first is told")
      ->type_name("NAME")
      ->allow_extra_args(false);
  app.add_flag("--static", raw.is_static,
               "Serve the named model only; a named MODEL is static by itself");
}

// Where requests come from, and from whom.
void add_transport_options(CLI::App& app, RawOptions& raw) {
  ServeOptions& options = raw.options;
  app.add_option(
         "--host", options.host,
         "Address to listen on; beyond loopback with a key (--api-key-file), or with --insecure")
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
  app.add_option("--ssl-certfile,--ssl-cert-file", options.tls_certfile,
                 "Speak TLS (https:// and wss://) with this certificate, PEM, behind it those "
                 "between it and the root; read again on SIGHUP, as is the key")
      ->type_name("FILE");
  app.add_option("--ssl-keyfile,--ssl-key-file", options.tls_keyfile,
                 "The certificate's private key, PEM, without a passphrase [in --ssl-certfile]")
      ->type_name("FILE");
  app.add_flag(
      "--stdio", options.on_stdio,
      "Answer what comes on standard input, a message a line, on standard output; ends with "
      "its input. No socket is opened, and the log stays on standard error");
  app.add_option("--api-key", options.api_keys,
                 "A key that requests must have, with all rights; may be given several times. Who "
                 "may list processes sees it: --api-key-file is better")
      ->type_name("KEY")
      ->allow_extra_args(false);
  app.add_option("--api-key-file", options.api_key_file,
                 "Keys with names, rights and limits, as JSON; read again on SIGHUP")
      ->type_name("FILE");
  app.add_flag("--insecure", options.insecure,
               "Listen beyond loopback without a key: whoever reaches the port may use it");
  app.add_flag("--log-prompts", options.log_prompts,
               "The line of the log that each request has shows how its prompt begins");
  app.add_option("--allow-origin", options.allowed_origins,
                 "A web page's origin that may connect, such as https://example.org, "
                 "http://localhost:* (any port), null (opened from a file) or * (any, see "
                 "docs/security.md); may be given several times (others are refused)")
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

void add_config_options(CLI::App& app, RawOptions& raw) {
  app.add_option(
         "--config", raw.config,
         "A TOML file of these options, by the same names; MODEL is 'model'. What stands on "
         "the command line counts before it")
      ->type_name("FILE")
      ->configurable(false);
  app.add_flag("--print-config", raw.prints_config,
               "Print the options in effect as such a file, defaults as comments and secrets left "
               "out, and "
               "exit")
      ->configurable(false);
}

// "--port" and so on.
std::vector<std::string> own_options(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* const option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// llama.cpp's, of which CLI11 would take the first letter, which asks for help.
void check_words(const CLI::App& app, const std::vector<std::string>& words) {
  const auto found = std::ranges::find_if(
      words, [](const std::string& word) { return word == "-hf" || word == "-hfr"; });
  if (found == words.end()) return;
  throw CLI::ParseError(instead_of(*found, own_options(app)), CLI::ExitCodes::ExtrasError);
}

// The first option among the arguments that CLI11 does not know; the others may be its values.
void check_rest(const CLI::App& app) {
  const std::vector<std::string> rest = app.remaining();
  if (rest.empty()) return;
  const auto option = std::find_if(rest.begin(), rest.end(),
                                   [](const std::string& word) { return word.starts_with('-'); });
  throw CLI::ParseError(instead_of(option != rest.end() ? *option : rest.front(), own_options(app)),
                        CLI::ExitCodes::ExtrasError);
}

// MODEL where none is given, from the environment; but options of auto ask for auto.
void take_default_model(CLI::App& app, RawOptions& raw) {
  const char* const name = std::getenv(kModelVariable);
  const auto given = [&app](const char* option) { return app.count(option) > 0; };
  if (name == nullptr || *name == '\0' || given("MODEL") || given("--model-dir") ||
      std::ranges::any_of(kAutoOptions, given)) {
    return;
  }
  raw.options.model = name;
  app.get_option("MODEL")->default_str(name);  // for --print-config
}

// Refuses options that apply only to auto, or only to a named model.
void check_auto_options(const CLI::App& app, const RawOptions& raw) {
  if (raw.options.is_auto() && raw.is_static) {
    throw CLI::ValidationError("--static", "serves one named MODEL; with auto there is none");
  }
  for (const char* option : {"--chat-template", "--decision-template", "--decision-temperature",
                             "--tool-call-format", "--lora-modules", "--served-model-name"}) {
    if (raw.options.is_auto() && app.count(option) > 0) {
      throw CLI::ValidationError(option, "is of one model: name MODEL");
    }
  }
  for (const char* option : kAutoOptions) {
    if (!raw.options.is_auto() && app.count(option) > 0) {
      throw CLI::ValidationError(option, "is for auto; a named MODEL is served alone and stays");
    }
  }
}

// Where requests come from.
void finish_transports(const CLI::App& app, const RawOptions& raw, ServeOptions& options) {
  for (const char* option :
       {"--host", "--port", "--listen", "--ssl-certfile", "--ssl-keyfile", "--api-key",
        "--api-key-file", "--cache-scope", "--insecure", "--allow-origin", "--allow-host"}) {
    if (options.on_stdio && app.count(option) > 0) {
      throw CLI::ValidationError(option, "is for sockets, of which --stdio opens none");
    }
  }
  if (!options.tls_keyfile.empty() && options.tls_certfile.empty()) {
    throw CLI::ValidationError("--ssl-keyfile", "needs its certificate; give --ssl-certfile too");
  }
  options.own_caches = raw.cache_scope == "key";
  if (options.own_caches && options.api_keys.empty() && options.api_key_file.empty()) {
    throw CLI::ValidationError("--cache-scope", "key needs keys; give --api-key-file too");
  }
  if (options.on_stdio) options.on_tcp = false;
  if (app.count("--listen") == 0) return;
  if (!raw.listen.starts_with(kUnixScheme) || raw.listen.size() == kUnixScheme.size()) {
    throw CLI::ValidationError(
        "--listen", "'" + raw.listen + "' is not unix:PATH; for TCP write --host and --port");
  }
  options.unix_path = raw.listen.substr(kUnixScheme.size());
  options.on_tcp = app.count("--host") + app.count("--port") > 0;
  for (const char* option : {"--ssl-certfile", "--allow-origin", "--allow-host"}) {
    if (!options.on_tcp && app.count(option) > 0) {
      throw CLI::ValidationError(option,
                                 "is for TCP, which --listen has taken the place of; "
                                 "give --host or --port too");
    }
  }
}

bool is_origin(std::string_view text) {
  if (text == "*" || text == "null") return true;
  const std::size_t scheme_end = text.find("://");
  if (scheme_end == 0 || scheme_end == std::string_view::npos) return false;
  if (text.substr(0, scheme_end).find('*') != std::string_view::npos) return false;
  std::string_view host = text.substr(scheme_end + 3);
  if (host.ends_with(":*")) host.remove_suffix(2);
  return !host.empty() && host.find_first_of("/*") == std::string_view::npos;
}

void check_served_names(const ServeOptions& options) {
  constexpr std::size_t kBytesMax = 256;
  for (const std::string& name : options.served_names) {
    if (name.empty() || name.size() > kBytesMax || has_control_character(name) || !is_utf8(name)) {
      throw CLI::ValidationError("--served-model-name",
                                 "allowed are names of 1 to " + std::to_string(kBytesMax) +
                                     " bytes of UTF-8 without control characters");
    }
  }
}

// No error shows a key.
void check_keys(const CLI::App& app, const ServeOptions& options) {
  const auto is_sendable = [](const std::string& key) {
    return !key.empty() && key.size() <= 512 &&
           std::ranges::all_of(key, [](char c) { return c > 0x20 && c < 0x7F; });
  };
  if (!std::ranges::all_of(options.api_keys, is_sendable)) {
    throw CLI::ValidationError("--api-key", "1 to 512 visible characters of ASCII are needed");
  }
  if (app.count("--api-key-file") > 0 && options.api_key_file.empty()) {
    throw CLI::ValidationError("--api-key-file", "is empty; name a file, or leave it out");
  }
}

ServeOptions finish_options(const CLI::App& app, const RawOptions& raw) {
  ServeOptions options = raw.options;
  finish_transports(app, raw, options);
  check_token_limits(options);
  const auto has_alias = [&raw](const char* name) {
    return std::ranges::find(raw.metrics_aliases, name) != raw.metrics_aliases.end();
  };
  options.metrics_aliases = {.vllm = has_alias("vllm"), .tgi = has_alias("tgi")};
  if (has_alias("none") && raw.metrics_aliases.size() > 1) {
    throw CLI::ValidationError("--metrics-aliases", "is none or names, not both");
  }
  if (app.count("--waiting-served-ratio") + app.count("--max-waiting-tokens") > 0) {
    options.batch.pacing = raw.pacing;
  }
  options.port = static_cast<std::uint16_t>(raw.port);
  if (raw.cuda) options.device = "cuda";
  finish_aici_options(raw, options);
  finish_lora_options(raw, options);
  options.score_cache_bytes = score_cache_of(raw.score_cache);
  if (!raw.swap_space.empty()) options.swap_bytes = swap_space_of(raw.swap_space);
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
    if (is_origin(origin)) continue;
    throw CLI::ValidationError(
        "--allow-origin", "'" + origin +
                              "' is no origin; write SCHEME://HOST, SCHEME://HOST:PORT, "
                              "SCHEME://HOST:* for all ports, null for pages from files, or *");
  }
  check_keys(app, options);
  check_served_names(options);
  options.tracing.max_bytes = size_option("--trace-limit", raw.trace_limit, trace::kTraceBytesMin);
  options.shutdown_timeout_ms = static_cast<int>(std::lround(raw.shutdown_timeout_s * 1000));
  const Result<std::int64_t> unload_after = parse_duration_ms(raw.unload_after);
  if (!unload_after) throw CLI::ValidationError("--unload-after", unload_after.error().message);
  options.unload_after_ms = *unload_after;
  const Result<log::Level> level = log::parse_level(raw.log_level);
  if (!level) throw CLI::ValidationError(level.error().message);
  options.log_level = *level;
  const Result<log::Format> format = log::parse_format(raw.log_format);
  if (!format) throw CLI::ValidationError(format.error().message);
  options.log_format = *format;
  const auto num_processors = static_cast<int>(std::thread::hardware_concurrency());
  options.num_io_threads = std::clamp(num_processors / 4, 2, 4);
  return options;
}

// CLI11's parser with what it writes to.
struct CommandLine {
  CommandLine()
      : app("lmtp-serve answers LMTP, the protocol of LMQL, from a language model.", "lmtp-serve") {
    app.set_version_flag("--version", "lmtp-serve " + std::string(kVersion),
                         "Print the version and exit");
    app.set_help_flag("-h,--help", "Print this and exit");
    app.footer(
        "lmtp-serve doctor [MODEL] [options] says whether these would work here, and what to do.\n"
        "lmtp-serve balance HOST:PORT... [options] sends streams to other servers of one model.\n"
        "lmtp-serve keygen [NAME] prints a fresh API key, and its line of --api-key-file.\n"
        "The environment gives options, too: --max-models is LMTP_ARG_MAX_MODELS.");
    app.allow_extras();  // check_rest gives better errors
    app.formatter(std::make_shared<HelpFormat>());
    const auto add = [&](const char* group, auto... adders) {
      app.option_defaults()->group(group);
      (adders(app, raw), ...);
    };
    add("Model", add_serving_options, add_layout_options, add_lora_options);
    add("Network and keys", add_transport_options, add_connection_options);
    add("Memory and batches", add_limit_options, add_scheduling_options);
    add("Models that requests name", add_auto_options);
    add("Controllers", add_aici_options);
    add("Logging and operation", add_operation_options, add_api_options, add_config_options);
    add_completion(app, {"demo", "auto", "random", "doctor", "balance", "keygen"});
  }
  // In their order; throws CLI11's errors.
  void parse(std::vector<std::string> arguments) {
    std::ranges::reverse(arguments);  // as CLI11 takes them
    app.parse(std::move(arguments));
  }

  CLI::App app;
  RawOptions raw;
};

// `arguments` with those of the file in front that they do not replace.
std::vector<std::string> with_config(const std::string& path, const CLI::App& given,
                                     const std::vector<std::string>& arguments) {
  Result<std::vector<std::string>> all = config_arguments(path, given);
  if (!all) throw CLI::ConfigError(all.error().message, CLI::ExitCodes::ConfigError);
  try {
    CommandLine().parse(*all);
  } catch (const CLI::ParseError& mistake) {
    throw CLI::ConfigError(path + ": " + mistake.what(), CLI::ExitCodes::ConfigError);
  }
  all->insert(all->end(), arguments.begin(), arguments.end());
  return *std::move(all);
}

}  // namespace

std::variant<ServeOptions, int> parse_serve_options(int argc, const char* const* argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (!arguments.empty() && arguments.front() == "keygen") {
    return print_fresh_key({arguments.begin() + 1, arguments.end()});
  }
  const bool is_doctor = !arguments.empty() && arguments.front() == "doctor";
  const bool is_balancer = !arguments.empty() && arguments.front() == "balance";
  if (is_doctor || is_balancer) arguments.erase(arguments.begin());
  if (!is_balancer) take_named_model(arguments);
  const auto line = std::make_unique<CommandLine>();
  CLI::App& app = line->app;
  if (is_balancer) add_balance_options(app, line->raw);
  try {
    read_environment(app);
    check_words(app, arguments);
    line->parse(arguments);
    const std::string path = line->raw.config;
    if (!path.empty()) line->parse(with_config(path, app, arguments));
    check_rest(app);
    if (!is_balancer) {
      take_default_model(app, line->raw);
      check_auto_options(app, line->raw);
    }
    ServeOptions options = finish_options(app, line->raw);
    if (is_balancer) finish_balance_options(app, line->raw, options);
    finish_layout_options(app, line->raw, options);
    options.is_doctor = is_doctor;
    if (is_doctor && options.has_layout()) {
      throw CLI::ValidationError("--layout", "is not for doctor, which looks at one server");
    }
    if (!line->raw.prints_config) return options;
    print_config(app, std::cout);
    return 0;
  } catch (const CLI::Success& wanted) {
    return app.exit(wanted);
  } catch (const CLI::ParseError& mistake) {
    std::cerr << "lmtp-serve: " << with_variable(app, mistake.what(), argc, argv)
              << " (lmtp-serve --help lists the options)\n";
    return kExitMistake;
  }
}

}  // namespace lmtp::tools
