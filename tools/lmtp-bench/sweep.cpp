#include "sweep.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <utility>

#include "counter_random.h"

namespace lmtp::tools {
namespace {

constexpr int kDefaultConcurrency = 8;
constexpr int kWarmupConcurrencyMax = 8;
constexpr std::int64_t kRequestsAtOnce = 64;  // of an unlimited rate
constexpr std::int64_t kRequestsMin = 16;     // of a low rate
constexpr double kDefaultRateDurationS = 10.0;
constexpr std::uint64_t kWarmupSeed = ~std::uint64_t{0};

std::string shortest(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

Result<std::vector<TraceRow>> fitting_rows(const BenchOptions& options, const ServerInfo& server,
                                           std::string& note) {
  auto rows = read_trace(options.dataset_path);
  if (!rows) return rows;
  const int limit = trace_length_max(options, server);
  if (limit == 0) return rows;
  const std::size_t num_rows = rows->size();
  const int divisor = options.workload.trace_length_divisor;
  std::erase_if(*rows, [limit, divisor](const TraceRow& row) {
    return divided_length(row.prompt_tokens, divisor) + divided_length(row.output_tokens, divisor) >
           limit;
  });
  if (rows->empty()) {
    return Error{ErrorCode::kInvalid, "no row of " + options.dataset_path + " fits into " +
                                          std::to_string(limit) +
                                          " tokens: --trace-length-divisor makes them shorter"};
  }
  if (rows->size() < num_rows) {
    note = std::to_string(num_rows - rows->size()) + " of the trace's " + std::to_string(num_rows) +
           " rows left out: longer than " + std::to_string(limit) +
           " tokens (--trace-length-divisor makes them shorter)";
  }
  return rows;
}

// The options that are the same at all points.
Result<void> complete_workload(const BenchOptions& options, const ServerInfo& server,
                               WorkloadOptions& work, LoadOptions& load, std::string& note) {
  if (work.vocab_size == 0) work.vocab_size = server.vocab_size;
  if (work.vocab_size == 0) {
    return Error{ErrorCode::kInvalid,
                 "the server does not tell its vocabulary's size: give --vocab-size"};
  }
  load.banned_tokens = options.banned_tokens;
  if (options.ignore_eos) {
    if (server.eos_token_ids.empty() && load.banned_tokens.empty()) {
      return Error{ErrorCode::kInvalid,
                   "--ignore-eos: the server does not name its end tokens: give --ban-token"};
    }
    load.banned_tokens.insert(load.banned_tokens.end(), server.eos_token_ids.begin(),
                              server.eos_token_ids.end());
  }
  std::ranges::sort(load.banned_tokens);
  load.banned_tokens.erase(std::unique(load.banned_tokens.begin(), load.banned_tokens.end()),
                           load.banned_tokens.end());
  if (!work.lmql.empty()) {
    const int size = options.lmql_mask_size < 0 ? work.vocab_size / 2 : options.lmql_mask_size;
    if (size >= work.vocab_size) {
      return Error{ErrorCode::kInvalid,
                   "--lmql-mask-size: the vocabulary has " + std::to_string(work.vocab_size)};
    }
    load.mask = mask_ids(work.seed, work.vocab_size, size);
  }
  if (options.dataset_path.empty()) return {};
  auto rows = fitting_rows(options, server, note);
  if (!rows) return rows.error();
  work.trace = std::make_shared<std::vector<TraceRow>>(std::move(*rows));
  return {};
}

std::int64_t default_num_requests(const SweepPoint& point) {
  if (!point.load.arrivals_s.empty()) {
    return static_cast<std::int64_t>(point.load.arrivals_s.size());
  }
  if (!point.request_rate) return 4L * point.load.max_concurrency;
  if (std::isinf(*point.request_rate)) return kRequestsAtOnce;
  const double count = std::ceil(*point.request_rate * kDefaultRateDurationS);
  return std::clamp(static_cast<std::int64_t>(std::min(count, 1e9)), kRequestsMin, kRequestsMax);
}

Result<SweepPoint> make_point(const BenchOptions& options, const LoadOptions& base,
                              std::optional<int> max_concurrency,
                              std::optional<double> request_rate) {
  SweepPoint point{max_concurrency, request_rate, base};
  LoadOptions& load = point.load;
  load.max_concurrency = max_concurrency.value_or(kConcurrencyMax);
  load.request_rate = request_rate.value_or(kUnlimitedRate);
  if (options.use_trace_timestamps) {
    for (const TraceRow& row : *base.workload->trace) {
      load.arrivals_s.push_back(row.arrival_s / options.trace_speedup);
    }
    const auto num_rows = static_cast<std::int64_t>(load.arrivals_s.size());
    if (load.num_requests > num_rows) {
      return Error{ErrorCode::kInvalid,
                   "--num-prompts: the trace has " + std::to_string(num_rows) + " rows"};
    }
  }
  if (load.num_requests == 0 && load.duration_s == 0) {
    load.num_requests = default_num_requests(point);
  }
  const bool at_once = request_rate && std::isinf(*request_rate);
  if (at_once && !max_concurrency && load.num_requests > 0) {
    // Each connection takes its share of them.
    load.max_concurrency =
        static_cast<int>(std::min<std::int64_t>(load.num_requests, kConcurrencyMax));
  }
  return point;
}

std::shared_ptr<const WorkloadOptions> reseeded(const WorkloadOptions& work, std::uint64_t number) {
  auto copy = std::make_shared<WorkloadOptions>(work);
  copy->seed = random_bits(work.seed, number);
  return copy;
}

std::optional<LoadOptions> make_warmup(const BenchOptions& options, const LoadOptions& first,
                                       const WorkloadOptions& work) {
  LoadOptions load = first;
  load.max_concurrency = std::min(load.max_concurrency, kWarmupConcurrencyMax);
  load.num_requests = num_warmups(options, first);
  if (load.num_requests == 0) return std::nullopt;
  load.duration_s = 0;
  load.request_rate = kUnlimitedRate;
  load.arrivals_s.clear();
  load.keep_records = false;
  load.workload = reseeded(work, kWarmupSeed);
  return load;
}

}  // namespace

int trace_length_max(const BenchOptions& options, const ServerInfo& server) {
  return options.max_model_len > 0 ? options.max_model_len : server.context_length;
}

std::int64_t num_warmups(const BenchOptions& options, const LoadOptions& first) {
  if (options.num_warmups >= 0) return options.num_warmups;
  return std::min(first.max_concurrency, kWarmupConcurrencyMax);
}

Result<Sweep> plan_sweep(const BenchOptions& options, const ServerInfo& server) {
  Sweep sweep;
  WorkloadOptions work = options.workload;
  LoadOptions base = options.load;
  if (auto good = complete_workload(options, server, work, base, sweep.note); !good) {
    return good.error();
  }
  std::vector<std::optional<double>> rates(options.request_rates.begin(),
                                           options.request_rates.end());
  std::vector<std::optional<int>> concurrencies(options.max_concurrencies.begin(),
                                                options.max_concurrencies.end());
  if (rates.empty()) rates.emplace_back();
  if (concurrencies.empty()) {
    const bool closed = !rates.front() && !options.use_trace_timestamps;
    concurrencies.push_back(closed ? std::optional(kDefaultConcurrency) : std::nullopt);
  }
  for (const auto& rate : rates) {
    for (const auto& concurrency : concurrencies) {
      base.workload = reseeded(work, sweep.points.size());
      auto point = make_point(options, base, concurrency, rate);
      if (!point) return point.error();
      sweep.points.push_back(std::move(*point));
    }
  }
  sweep.warmup = make_warmup(options, sweep.points.front().load, work);
  return sweep;
}

std::string describe(const SweepPoint& point) {
  if (!point.request_rate && point.load.arrivals_s.empty()) {
    return "concurrency " + std::to_string(point.load.max_concurrency);
  }
  std::string text = "trace times";
  if (point.request_rate) {
    text = std::isinf(*point.request_rate) ? "all at once" : shortest(*point.request_rate) + "/s";
  }
  if (point.max_concurrency) {
    text += ", concurrency " + std::to_string(*point.max_concurrency) + " at most";
  }
  return text;
}

}  // namespace lmtp::tools
