#include "bench_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "common/checks.h"
#include "common/completion.h"
#include "common/help_format.h"
#include "common/json_text.h"
#include "common/split_host.h"
#include "lmql_programs.h"
#include "lmtp/base/version.h"
#include "lmtp/client/client.h"
#include "option_rules.h"

namespace lmtp::tools {
namespace {

constexpr const char* kDescription =
    "Puts a load on an LMTP server and reports throughput, time to first token (TTFT), time per\n"
    "output token (TPOT), inter-token latency (ITL) and end-to-end latency (E2EL). Options go by\n"
    "the names of the field's serving benchmarks; lists (8,16,32) are a sweep.";

constexpr int kTokensMax = 1 << 24;

// Options as text, before they are converted.
struct Words {
  std::string host;
  std::optional<std::uint16_t> port;
  client::SecurityOptions security;
  std::string prompt_json;
  std::vector<std::string> lmql = {"chunks", "beams", "scores"};
  std::vector<std::string> metrics;
  double timeout_s = 120.0;
};

const std::map<std::string, LmqlPattern>& lmql_patterns() {
  static const std::map<std::string, LmqlPattern> patterns = {{"chunks", LmqlPattern::kChunks},
                                                              {"beams", LmqlPattern::kBeams},
                                                              {"scores", LmqlPattern::kScores}};
  return patterns;
}

const std::map<std::string, Metric>& metric_names() {
  static const std::map<std::string, Metric> metrics = {{"ttft", Metric::kTtft},
                                                        {"tpot", Metric::kTpot},
                                                        {"itl", Metric::kItl},
                                                        {"e2el", Metric::kE2el}};
  return metrics;
}

void add_server_options(CLI::App& app, BenchOptions& options, Words& words) {
  const char* group = "Server";
  app.add_option("MODEL,--model", options.load.model, "the model's name for the server")
      ->group(group);
  app.add_option("--host", words.host, "where it is (localhost); host:port and wss:// will do")
      ->group(group);
  app.add_option("--port", words.port, "its port (8080; of wss:// 443)")->group(group);
  app.add_option("--api-key", words.security.api_key, "the key that it asks for")
      ->envname("LMTP_API_KEY")
      ->check(not_empty, "")
      ->group(group);
  app.add_option("--cacert", words.security.ca_file,
                 "with wss://: PEM file of who signed its certificate (the system's)")
      ->group(group);
  app.add_flag("--insecure", words.security.insecure, "with wss://: take any certificate")
      ->group(group);
  app.add_option("--connections", options.load.num_connections,
                 "connections that share the requests (1)")
      ->check(CLI::Range(1, kConnectionsMax))
      ->group(group);
  app.add_option("--vocab-size,--vocab", options.workload.vocab_size,
                 "the vocabulary's size (asked for)")
      ->check(CLI::Range(1, kTokensMax))
      ->group(group);
  app.add_option("--timeout", words.timeout_s,
                 "seconds without any answer after which a connection is given up (120)")
      ->check(CLI::Range(0.001, 86400.0))
      ->group(group);
}

void add_load_options(CLI::App& app, BenchOptions& options) {
  const char* group = "Load";
  app.add_option("--max-concurrency,--streams", options.max_concurrencies,
                 "N[,N...] requests at a time; without a rate each is followed by the next as soon "
                 "as it ends (8)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, kConcurrencyMax))
      ->group(group);
  app.add_option("--request-rate", options.request_rates,
                 "R[,R...] requests a second, whether or not the server keeps up; inf: all at once")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group(group);
  app.add_option("--burstiness", options.load.burstiness,
                 "shape of the gamma distributed gaps: 1 (default) is a Poisson process, less is "
                 "burstier")
      ->check(CLI::Range(0.001, 1e6))
      ->group(group);
  app.add_option("--num-prompts,--requests", options.load.num_requests,
                 "requests a point (4 times the concurrency, or 10 seconds of the rate)")
      ->check(CLI::Range(std::int64_t{1}, kRequestsMax))
      ->group(group);
  app.add_option("--duration", options.load.duration_s, "or: seconds a point")
      ->check(CLI::Range(0.01, 86400.0))
      ->group(group);
  app.add_option(
         "--num-warmups,--warmup", options.num_warmups,
         "requests before the first point, not measured (as many as run at once, 8 at most)")
      ->check(CLI::Range(std::int64_t{0}, kRequestsMax))
      ->group(group);
  app.add_option("--seed", options.workload.seed, "of prompts, lengths and arrivals (1)")
      ->group(group);
}

void add_request_options(CLI::App& app, BenchOptions& options, Words& words) {
  const char* group = "Requests";
  WorkloadOptions& work = options.workload;
  app.add_option("--dataset-name", options.dataset_name,
                 "fixed (default) or random lengths, a trace, or lmql: what LMQL's programs send")
      ->check(CLI::IsMember({"fixed", "random", "trace", "lmql"}))
      ->group(group);
  app.add_option("--random-input-len,--input-len,--prompt-tokens", work.input_len,
                 "random tokens in a prompt (128)")
      ->check(CLI::Range(1, kTokensMax))
      ->group(group);
  app.add_option("-n,--random-output-len,--output-len,--max-tokens", work.output_len,
                 "tokens to generate or score (64)")
      ->check(CLI::Range(1, kTokensMax))
      ->group(group);
  app.add_option("--random-range-ratio", work.range_ratio,
                 "r: lengths are drawn from (1 - r) to (1 + r) times these (0)")
      ->check(CLI::Range(0.0, 0.999))
      ->group(group);
  app.add_option("--prefix-len", work.prefix_len,
                 "tokens in front of each prompt that its group shares (0)")
      ->check(CLI::Range(0, kTokensMax))
      ->group(group);
  app.add_option("--num-prefix-groups", work.num_prefix_groups, "such groups (1)")
      ->check(CLI::Range(1, kTokensMax))
      ->group(group);
  app.add_option("--prompt", words.prompt_json,
                 "this JSON array of token ids as every prompt (lmtp-client --encode makes one)")
      ->group(group);
  app.add_flag("--score", work.score, "SCORE random tokens instead of generating some")
      ->group(group);
  app.add_option("--temperature", options.load.temperature, "0 (default) is greedy")
      ->check(CLI::Range(0.0F, 100.0F))
      ->group(group);
  app.add_flag("--ignore-eos", options.ignore_eos,
               "forbid the model's end tokens, so that outputs keep their length")
      ->group(group);
  app.add_option("--ban-token", options.banned_tokens,
                 "N[,N...] token ids never to generate, where the server does not name its end "
                 "tokens")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(0, kTokensMax))
      ->group(group);
}

void add_pattern_options(CLI::App& app, BenchOptions& options, Words& words) {
  WorkloadOptions& work = options.workload;
  const char* group = "Trace (--dataset-name trace)";
  app.add_option("--dataset-path", options.dataset_path,
                 "CSV with arrival_s, prompt_tokens, output_tokens and maybe prefix_blocks")
      ->group(group);
  app.add_flag("--use-trace-timestamps", options.use_trace_timestamps,
               "requests arrive when the trace says")
      ->group(group);
  app.add_option("--trace-speedup", options.trace_speedup, "so many times as fast (1)")
      ->check(CLI::Range(0.001, 1e6))
      ->group(group);
  app.add_option("--trace-length-divisor", work.trace_length_divisor,
                 "lengths are divided by this, for small models (1)")
      ->check(CLI::Range(1, kTraceBlockTokens))
      ->group(group);
  app.add_option("--max-model-len", options.max_model_len,
                 "rows of more tokens are left out (what the server says)")
      ->check(CLI::Range(1, kTokensMax))
      ->group(group);
  group = "LMQL (--dataset-name lmql): requests are programs then";
  app.add_option("--lmql-pattern", words.lmql,
                 "in turns: chunks (of 16 tokens under a mask), beams, scores (default: all)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember(lmql_patterns()))
      ->group(group);
  app.add_option("--lmql-mask-size", options.lmql_mask_size,
                 "entries of the chunks' logit_bias (half the vocabulary)")
      ->check(CLI::Range(0, kTokensMax))
      ->group(group);
  app.add_option("--lmql-beams", work.lmql_beams, "beams of a search (4)")
      ->check(CLI::Range(1, kLmqlBeamsMax))
      ->group(group);
  app.add_option("--lmql-scores", work.lmql_scores, "texts scored at once (8)")
      ->check(CLI::Range(1, 1024))
      ->group(group);
  app.add_option("--lmql-score-len", work.lmql_score_len, "tokens of each (6)")
      ->check(CLI::Range(1, kTokensMax))
      ->group(group);
}

void add_report_options(CLI::App& app, BenchOptions& options, Words& words) {
  const char* group = "Report";
  app.add_option("--percentile-metrics", words.metrics, "of ttft,tpot,itl,e2el (all)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember(metric_names()))
      ->group(group);
  app.add_option("--metric-percentiles", options.percentiles, "N[,N...] (50,90,99)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(0.001, 100.0))
      ->group(group);
  app.add_option("--json", options.json_path, "FILE for all of it; -: print it, and no table")
      ->group(group);
  app.add_flag("--save-detailed", options.load.keep_records, "each request in it as well")
      ->group(group);
  app.add_option("--plot", options.plot_path, "FILE.svg for throughput and latencies of the sweep")
      ->group(group);
}

Result<void> complete(BenchOptions& options, const Words& words) {
  client::SecurityOptions security = words.security;
  if (!words.host.empty()) {
    auto split = split_host(words.host);
    if (!split) return split.error();
    options.load.host = std::move(split->host);
    security.tls = split->is_tls;
    if (split->is_tls) options.load.port = kHttpsPort;
    options.load.port = split->port.value_or(words.port.value_or(options.load.port));
  } else {
    options.load.port = words.port.value_or(options.load.port);
  }
  auto secured = client::make_security(security);
  if (!secured) return secured.error();
  options.load.security = *std::move(secured);
  if (!words.prompt_json.empty()) {
    auto prompt = parse_ids(words.prompt_json);
    if (!prompt) return Error{prompt.error().code, "--prompt: " + prompt.error().message};
    if (prompt->empty()) return Error{ErrorCode::kInvalid, "--prompt: is empty"};
    options.workload.prompt = std::move(*prompt);
  }
  if (options.dataset_name == "lmql") {
    for (const std::string& name : words.lmql) {
      options.workload.lmql.push_back(lmql_patterns().at(name));
    }
  }
  if (!words.metrics.empty()) {
    options.metrics.clear();
    for (const std::string& name : words.metrics) {
      options.metrics.push_back(metric_names().at(name));
    }
  }
  options.load.timeout_ms = static_cast<int>(std::ceil(words.timeout_s * 1000));
  std::ranges::sort(options.banned_tokens);
  return {};
}

int fail(const std::string& message) {
  std::fprintf(stderr, "lmtp-bench: %s\n", message.c_str());
  return 2;
}

}  // namespace

std::variant<BenchOptions, int> parse_bench_options(int argc, const char* const* argv) {
  BenchOptions options;
  Words words;
  CLI::App app(kDescription, "lmtp-bench");
  app.formatter(std::make_shared<HelpFormat>());
  app.set_version_flag("--version", "lmtp-bench " + std::string(kVersion));
  add_server_options(app, options, words);
  add_load_options(app, options);
  add_request_options(app, options, words);
  add_pattern_options(app, options, words);
  add_report_options(app, options, words);
  add_completion(app, {});
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    return fail(error.what() + std::string(" (--help shows the options)"));
  }
  if (auto good = complete(options, words); !good) return fail(good.error().message);
  const auto is_given = [&app](const std::string& name) { return app.count(name) > 0; };
  if (const std::string wrong = wrong_options(options, is_given); !wrong.empty()) {
    return fail(wrong);
  }
  return options;
}

}  // namespace lmtp::tools
