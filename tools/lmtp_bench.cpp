// lmtp-bench: a closed-loop load generator for LMTP servers.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "client_options.h"
#include "json_text.h"
#include "lmtp/base/version.h"
#include "lmtp/protocol/codec.h"
#include "load_generator.h"

namespace lmtp::tools {
namespace {

constexpr const char* kDescription =
    "Keeps N streams of an LMTP server busy, each followed by the next as soon as it ends, and\n"
    "reports tokens per second, time to the first token and time between tokens.";

struct BenchOptions {
  LoadOptions load;
  std::int64_t num_warmup = -1;  // requests; -1: one a stream
  int vocab_size = 0;            // 0: ask
  std::string prompt_json;
  int banned_token = -1;
  bool json = false;
};

void add_options(CLI::App& app, BenchOptions& options, std::string& host) {
  LoadOptions& load = options.load;
  app.add_option("MODEL,--model", load.model, "the model's name for the server");
  app.add_option("--host", host, "where the server is (localhost); host:port will do");
  app.add_option("--port", load.port, "its port (8080)");
  app.add_option("--streams", load.num_streams, "streams at a time (8)")
      ->check(CLI::Range(1, kStreamsMax));
  app.add_option("--connections", load.num_connections, "connections that share them (1)")
      ->check(CLI::Range(1, kConnectionsMax));
  app.add_option("--prompt-tokens", load.prompt_tokens, "random tokens in a prompt (128)")
      ->check(CLI::Range(1, 1 << 24));
  app.add_option("--shared-prefix", load.shared_prefix,
                 "of them, tokens at the front that all requests share (0)")
      ->check(CLI::Range(0, 1 << 24));
  app.add_option("--prompt", options.prompt_json,
                 "this JSON array of token ids as every prompt (lmtp-client --encode makes one)");
  app.add_option("-n,--max-tokens", load.params.max_tokens, "tokens to generate or score (64)")
      ->check(CLI::Range(1, 1 << 24));
  app.add_option("--temperature", load.params.temperature, "0 (default) is greedy");
  app.add_option("--ban-token", options.banned_token,
                 "a token never to generate: EOS, so that streams keep their length");
  app.add_flag("--score", load.score, "SCORE random tokens instead of generating some");
  app.add_option("--requests", load.num_requests, "requests to measure (4 a stream)")
      ->check(CLI::Range(std::int64_t{1}, kRequestsMax));
  app.add_option("--duration", load.duration_s, "or: seconds to measure")
      ->check(CLI::Range(0.01, 86400.0));
  app.add_option("--warmup", options.num_warmup, "requests before that (1 a stream)")
      ->check(CLI::Range(std::int64_t{0}, kRequestsMax));
  app.add_option("--seed", load.seed, "of the random prompts (1)");
  app.add_option("--vocab", options.vocab_size, "the vocabulary's size (asked for)")
      ->check(CLI::Range(1, 1 << 24));
  app.add_flag("--json", options.json, "print one JSON object instead of a table");
}

// What the options leave open; an error where they do not fit together.
Result<void> complete(BenchOptions& options, const std::string& host) {
  LoadOptions& load = options.load;
  if (!host.empty()) {
    if (auto split = split_host(host, load.host, load.port); !split) return split;
  }
  if (load.num_requests > 0 && load.duration_s > 0) {
    return Error{"--requests and --duration exclude each other"};
  }
  if (load.num_connections > load.num_streams) {
    return Error{"--connections: at most one a stream"};
  }
  if (!options.prompt_json.empty()) {
    auto prompt = parse_ids(options.prompt_json);
    if (!prompt) return Error{"--prompt: " + prompt.error().message};
    if (prompt->empty()) return Error{"--prompt: is empty"};
    load.prompt = std::move(*prompt);
  }
  if (load.num_requests == 0 && load.duration_s == 0) load.num_requests = 4L * load.num_streams;
  if (options.num_warmup < 0) options.num_warmup = load.num_streams;
  if (options.banned_token >= 0) {
    auto bias = std::make_shared<protocol::LogitBias>();
    bias->ids = {options.banned_token};
    bias->values = {-100.0F};
    load.params.logit_bias = std::move(bias);
  }
  return {};
}

Result<LoadStats> measure(const BenchOptions& options) {
  if (options.num_warmup > 0) {
    LoadOptions warmup = options.load;
    warmup.num_requests = options.num_warmup;
    warmup.duration_s = 0;
    warmup.seed = ~options.load.seed;  // other prompts: none of the measured ones may be cached
    auto stats = run_load(warmup);
    if (!stats) return stats;
    if (stats->num_finished == 0) return Error{"the warm-up failed: " + stats->first_error};
  }
  return run_load(options.load);
}

struct Times {
  double p50_ms, p90_ms, p99_ms, max_ms;
};

Times times_of(const TimeHistogram& histogram) {
  return {histogram.quantile_s(0.5) * 1e3, histogram.quantile_s(0.9) * 1e3,
          histogram.quantile_s(0.99) * 1e3, histogram.max_s() * 1e3};
}

void print_table(const LoadOptions& load, const LoadStats& stats) {
  std::printf("%s:%d, %d streams over %d connection%s, prompts of %d tokens, %d %s\n",
              load.host.c_str(), load.port, load.num_streams, load.num_connections,
              load.num_connections == 1 ? "" : "s",
              load.prompt.empty() ? load.prompt_tokens : static_cast<int>(load.prompt.size()),
              load.params.max_tokens, load.score ? "scored" : "generated");
  std::printf("%-24s %12lld  in %.2f s, %.2f a second\n", "requests finished",
              static_cast<long long>(stats.num_finished), stats.wall_s,
              static_cast<double>(stats.num_finished) / stats.wall_s);
  std::printf("%-24s %12lld  (%lld stopped early, %lld cut off at the end)\n", "errors",
              static_cast<long long>(stats.num_errors), static_cast<long long>(stats.num_stopped),
              static_cast<long long>(stats.num_unfinished));
  std::printf("%-24s %12.1f\n", "tokens per second",
              static_cast<double>(stats.num_tokens) / stats.wall_s);
  std::printf("%-24s %12.1f\n", "prompt tokens per second",
              static_cast<double>(stats.num_prompt_tokens) / stats.wall_s);
  std::printf("%-24s %10s %10s %10s %10s\n", "", "p50", "p90", "p99", "max");
  for (const auto& [name, histogram] : {std::pair{"first token, ms", &stats.first_token},
                                        std::pair{"between tokens, ms", &stats.next_token}}) {
    const Times times = times_of(*histogram);
    std::printf("%-24s %10.2f %10.2f %10.2f %10.2f\n", name, times.p50_ms, times.p90_ms,
                times.p99_ms, times.max_ms);
  }
  if (!stats.first_error.empty()) std::printf("first error: %s\n", stats.first_error.c_str());
}

void print_times(const char* name, const TimeHistogram& histogram) {
  const Times times = times_of(histogram);
  std::printf("\"%s\": {\"p50\": %.4f, \"p90\": %.4f, \"p99\": %.4f, \"max\": %.4f}, ", name,
              times.p50_ms, times.p90_ms, times.p99_ms, times.max_ms);
}

void print_json(const LoadOptions& load, const LoadStats& stats) {
  std::string model;
  std::string error;
  protocol::append_json_string(load.model, model);
  protocol::append_json_string(stats.first_error, error);
  std::printf("{\"model\": %s, \"streams\": %d, \"connections\": %d, ", model.c_str(),
              load.num_streams, load.num_connections);
  std::printf("\"prompt_tokens\": %d, \"max_tokens\": %d, \"score\": %s, \"seed\": %llu, ",
              load.prompt.empty() ? load.prompt_tokens : static_cast<int>(load.prompt.size()),
              load.params.max_tokens, load.score ? "true" : "false",
              static_cast<unsigned long long>(load.seed));
  std::printf("\"wall_s\": %.6f, \"requests\": %lld, \"requests_per_s\": %.4f, ", stats.wall_s,
              static_cast<long long>(stats.num_finished),
              static_cast<double>(stats.num_finished) / stats.wall_s);
  std::printf("\"stopped_early\": %lld, \"unfinished\": %lld, \"errors\": %lld, ",
              static_cast<long long>(stats.num_stopped),
              static_cast<long long>(stats.num_unfinished),
              static_cast<long long>(stats.num_errors));
  std::printf("\"tokens\": %lld, \"tokens_per_s\": %.3f, \"prompt_tokens_per_s\": %.3f, ",
              static_cast<long long>(stats.num_tokens),
              static_cast<double>(stats.num_tokens) / stats.wall_s,
              static_cast<double>(stats.num_prompt_tokens) / stats.wall_s);
  print_times("first_token_ms", stats.first_token);
  print_times("between_tokens_ms", stats.next_token);
  std::printf("\"first_error\": %s}\n", error.c_str());
}

int fail(const std::string& message, int code) {
  std::fprintf(stderr, "lmtp-bench: %s\n", message.c_str());
  return code;
}

int run(int argc, const char* const* argv) {
  BenchOptions options;
  options.load.params.max_tokens = 64;
  std::string host;
  CLI::App app(kDescription, "lmtp-bench");
  app.set_version_flag("--version", "lmtp-bench " + std::string(kVersion));
  add_options(app, options, host);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    return fail(error.what() + std::string(" (--help shows the options)"), 2);
  }
  if (auto good = complete(options, host); !good) return fail(good.error().message, 2);
  options.load.vocab_size = options.vocab_size;
  if (options.vocab_size == 0) {
    const auto asked = ask_vocab_size(options.load);
    if (!asked) return fail(asked.error().message, 1);
    options.load.vocab_size = *asked;
  }
  const auto stats = measure(options);
  if (!stats) return fail(stats.error().message, 1);
  if (options.json) {
    print_json(options.load, *stats);
  } else {
    print_table(options.load, *stats);
  }
  return stats->num_errors == 0 && stats->num_tokens > 0 ? 0 : 1;
}

}  // namespace
}  // namespace lmtp::tools

int main(int argc, char** argv) { return lmtp::tools::run(argc, argv); }
