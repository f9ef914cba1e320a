// The options of `lmtp-serve balance`: where the workers are, and those of serving that do not
// concern what is computed.
#include "balance_options.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <string_view>

#include "common/checks.h"
#include "lmtp/base/result.h"

namespace lmtp::tools {
namespace {

constexpr std::string_view kServing[] = {"--help",
                                         "--version",
                                         "--host",
                                         "--port",
                                         "--listen",
                                         "--ssl-certfile",
                                         "--ssl-keyfile",
                                         "--api-key",
                                         "--api-key-file",
                                         "--cache-scope",
                                         "--insecure",
                                         "--allow-origin",
                                         "--allow-host",
                                         "--chat-template",
                                         "--decision-template",
                                         "--decision-temperature",
                                         "--tool-call-format",
                                         "--max-concurrent-requests",
                                         "--max-message-size",
                                         "--max-write-queue",
                                         "--max-buffer-bytes",
                                         "--max-read-buffers",
                                         "--max-write-queues",
                                         "--max-connections",
                                         "--max-connections-per-address",
                                         "--max-request-rate-per-address",
                                         "--max-best-of",
                                         "--max-stop-sequences",
                                         "--max-top-n-tokens",
                                         "--open-objects",
                                         "--no-ui",
                                         "--shutdown-timeout",
                                         "--metrics-aliases",
                                         "--log-level",
                                         "--log-format",
                                         "WORKER",
                                         "--model",
                                         "--policy",
                                         "--affinity-tokens",
                                         "--balance-factor",
                                         "--worker-timeout",
                                         "--worker-stall-timeout",
                                         "--worker-connections",
                                         "--worker-api-key"};

// MODEL_INFO tells of steps every 2 s.
constexpr double kStallTimeoutMinS = 10.0;

}  // namespace

bool is_for_balancer(const CLI::Option& option) {
  const std::string& name = option.get_single_name();
  return std::ranges::any_of(kServing, [&](std::string_view known) {
    return option.check_name(std::string(known)) || name == known;
  });
}

void limit_requests(const CLI::App& app, std::size_t num_workers, ServeOptions& options) {
  if (app.count("--max-concurrent-requests") == 0) {
    options.max_concurrent_requests *= static_cast<int>(num_workers);
  }
  options.balance.max_requests = static_cast<std::size_t>(options.max_concurrent_requests);
}

void add_balance_options(CLI::App& app, RawOptions& raw) {
  app.remove_option(app.get_option("MODEL"));
  balance::BalanceOptions& balance = raw.options.balance;
  app.add_option("WORKER", raw.workers,
                 "A server to send streams to: HOST:PORT, [ADDRESS]:PORT or unix:PATH; all of them "
                 "serve one model")
      ->required()
      ->expected(1, static_cast<int>(balance::kWorkersMax))
      ->type_name("");
  app.add_option("--model", raw.options.model,
                 "The model's folder or name here, for its tokenizer and chat template; its "
                 "weights are not read [as the workers call it]")
      ->type_name("MODEL");
  app.add_option("--policy", balance.policy,
                 "prefix: to the worker that has seen a stream's beginning; leastconn: to the one "
                 "with the fewest streams; random [prefix]")
      ->transform(CLI::Transformer(
          std::map<std::string, balance::Policy>{{"prefix", balance::Policy::kPrefix},
                                                 {"leastconn", balance::Policy::kLeastConn},
                                                 {"random", balance::Policy::kRandom}}))
      ->type_name("P");
  app.add_option("--affinity-tokens", balance.affinity_tokens,
                 "Tokens of a stream's beginning by which its worker is found")
      ->check(CLI::Range(0, 1 << 20))
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--balance-factor", balance.balance_factor,
                 "A worker that has so many times the mean to do gets no more streams for their "
                 "beginning")
      ->check(CLI::Range(1.0, 1e6))
      ->type_name("F")
      ->capture_default_str();
  app.add_option("--worker-timeout", raw.worker_timeout_s,
                 "Seconds that a stream waits while no worker can take it")
      ->check(CLI::Range(0.1, 86'400.0))
      ->type_name("S")
      ->capture_default_str();
  app.add_option("--worker-stall-timeout", raw.worker_stall_timeout_s,
                 "Seconds after which a worker that has streams and computes no step is given up; "
                 "0: never")
      ->check(CLI::Range(0.0, 86'400.0))
      ->type_name("S")
      ->capture_default_str();
  app.add_option("--worker-connections", balance.connections,
                 "Connections to each worker; a client's streams use one of them")
      ->check(CLI::Range(1, 64))
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--worker-api-key", balance.security.api_key,
                 "The key that the workers ask for; who may list processes sees it")
      ->check(not_empty, "")
      ->type_name("KEY");
  for (CLI::Option* option : app.get_options()) {
    if (!is_for_balancer(*option)) option->group("");  // not shown
  }
}

void finish_balance_options(const CLI::App& app, const RawOptions& raw, ServeOptions& options) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() > 0 && option->get_group().empty()) {
      throw CLI::ValidationError("--" + option->get_single_name(),
                                 "is not for a balancer; give it to the workers");
    }
  }
  balance::BalanceOptions& balance = options.balance;
  for (const std::string& text : raw.workers) {
    const Result<balance::WorkerAddress> worker = balance::parse_worker_address(text);
    if (!worker) throw CLI::ValidationError("WORKER", worker.error().message);
    const auto is_same = [&](const auto& other) { return other.name() == worker->name(); };
    if (std::ranges::any_of(balance.workers, is_same)) {
      throw CLI::ValidationError("WORKER", "'" + text + "' is named twice");
    }
    balance.workers.push_back(*worker);
  }
  balance.worker_timeout_ms = static_cast<int>(raw.worker_timeout_s * 1000);
  if (raw.worker_stall_timeout_s > 0 && raw.worker_stall_timeout_s < kStallTimeoutMinS) {
    throw CLI::ValidationError("--worker-stall-timeout", "allowed are 0, and 10 and more");
  }
  balance.stall_timeout_ms = static_cast<int>(raw.worker_stall_timeout_s * 1000);
  if (std::ssize(balance.workers) * balance.connections > balance::kLinksMax) {
    throw CLI::ValidationError(
        "--worker-connections",
        "to all workers together at most " + std::to_string(balance::kLinksMax) + " are allowed");
  }
  // Workers that may have more waiting are given the same option.
  balance.message_bytes_max = std::max(balance.message_bytes_max, options.max_write_queue_bytes);
  limit_requests(app, balance.workers.size(), options);
}

}  // namespace lmtp::tools
