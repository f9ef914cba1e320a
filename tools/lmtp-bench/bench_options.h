// The command line of lmtp-bench.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "load_options.h"
#include "metric.h"

namespace lmtp::tools {

inline constexpr std::size_t kPointsMax = 256;  // of a sweep

struct BenchOptions {
  // Common to all points of the sweep; the workload is completed with the server's answer to
  // MODEL_INFO.
  LoadOptions load;
  WorkloadOptions workload;

  std::vector<double> request_rates;  // empty: closed loop
  std::vector<int> max_concurrencies;
  std::int64_t num_warmups = -1;  // -1: as many as run at once, 8 at most

  std::string dataset_name = "fixed";
  std::string dataset_path;
  bool use_trace_timestamps = false;
  double trace_speedup = 1.0;
  int max_model_len = 0;    // 0: the server's context length
  int lmql_mask_size = -1;  // -1: half the vocabulary
  bool ignore_eos = false;
  std::vector<TokenId> banned_tokens;

  std::vector<Metric> metrics = {Metric::kTtft, Metric::kTpot, Metric::kItl, Metric::kE2el};
  std::vector<double> percentiles = {50, 90, 99};
  std::string json_path;  // empty: none; "-": standard output, instead of the table
  std::string plot_path;  // empty: none
};

// The options, or the exit code if there is nothing to do: 0 after --help and --version; 2 after an
// error, which has been written to stderr as one line.
std::variant<BenchOptions, int> parse_bench_options(int argc, const char* const* argv);

}  // namespace lmtp::tools
