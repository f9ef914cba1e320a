// numerics: the numerics contract as a program; tools/numerics starts it, docs/numerics.md tells
// what it shows.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "grid.h"
#include "options.h"
#include "run.h"

namespace lmtp::numerics {
namespace {

constexpr int kDifferencesShown = 10;

// Sums over the configurations that have one value of one axis, or over all.
struct Tally {
  int num_configurations = 0;
  int num_points = 0;
  int num_differing = 0;
  int num_preempted = 0;  // streams
  std::int64_t num_preemptions = 0;
  std::int64_t num_partial_hits = 0;
  std::int64_t num_cached_tokens = 0;
  int max_rows = 0;

  void add(const ConfigurationResult& result) {
    const CompanyReport& report = result.report;
    ++num_configurations;
    num_points += static_cast<int>(result.differences.size());
    num_differing += static_cast<int>(
        std::ranges::count_if(result.differences, [](const auto& d) { return !d.empty(); }));
    num_preempted += static_cast<int>(
        std::ranges::count_if(report.outcomes, [](const auto& o) { return o.num_preempted > 0; }));
    num_preemptions += report.num_preemptions;
    num_partial_hits += report.num_partial_hits;
    num_cached_tokens += report.num_cached_tokens;
    max_rows = std::max(max_rows, report.max_rows);
  }
};

class Table {
 public:
  explicit Table(const std::vector<Axis>& axes) : axes_(axes) {
    for (const Axis& axis : axes) by_value_.emplace_back(axis.values.size());
  }

  void add(const Configuration& configuration, const ConfigurationResult& result) {
    all_.add(result);
    for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
      by_value_[axis][static_cast<std::size_t>(configuration.at[axis])].add(result);
    }
  }

  void print() const {
    std::printf("\n%-10s %-8s %8s %8s %9s %12s %13s %12s %9s\n", "", "", "points", "differ",
                "preempted", "preemptions", "cached tokens", "partial hits", "most rows");
    for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
      for (std::size_t value = 0; value < by_value_[axis].size(); ++value) {
        const std::string& name = axes_[axis].values[value];
        print_row(value == 0 ? axes_[axis].name : "", name.substr(name.rfind('/') + 1),
                  by_value_[axis][value]);
      }
    }
    print_row("all", "", all_);
  }

  const Tally& all() const { return all_; }

 private:
  static void print_row(const std::string& axis, const std::string& value, const Tally& tally) {
    std::printf("%-10s %-8s %8d %8d %9d %12lld %13lld %12lld %9d\n", axis.c_str(), value.c_str(),
                tally.num_points, tally.num_differing, tally.num_preempted,
                static_cast<long long>(tally.num_preemptions),
                static_cast<long long>(tally.num_cached_tokens),
                static_cast<long long>(tally.num_partial_hits), tally.max_rows);
  }

  const std::vector<Axis>& axes_;
  std::vector<std::vector<Tally>> by_value_;  // [axis][value]
  Tally all_;
};

void print_differences(const Options& options, const Configuration& configuration,
                       const ConfigurationResult& result, int& num_shown) {
  const std::string how = configuration.options(options.axes);
  if (!result.not_so.empty()) std::printf("NOT SO: %s: %s\n", how.c_str(), result.not_so.c_str());
  for (std::size_t i = 0; i < result.differences.size(); ++i) {
    if (result.differences[i].empty() || ++num_shown > kDifferencesShown + 1) continue;
    if (num_shown > kDifferencesShown) {
      std::printf("(more of them are only counted)\n");
      continue;
    }
    std::printf("DIFFERS: --seed %llu%s %s: stream %zu, %s\n",
                static_cast<unsigned long long>(options.seed), options.backend_option.c_str(),
                how.c_str(), i, result.differences[i].c_str());
  }
  std::fflush(stdout);
}

void print_progress(std::size_t done, std::size_t count, double seconds) {
  std::fprintf(stderr, "%zu of %zu configurations, %.0f s\n", done, count, seconds);
}

int run(const Options& options) {
  using Clock = std::chrono::steady_clock;
  constexpr std::size_t kProgressEvery = 100;
  Runner runner({options.seed, options.backend});
  for (const std::string& model : options.axes.front().values) {
    if (const Result<void> added = runner.add_model(model); !added.ok()) {
      std::fprintf(stderr, "numerics: %s\n", added.error().message.c_str());
      return 2;
    }
  }
  auto configurations = all_configurations(options.axes);
  if (options.sample) configurations = sample(configurations, options.seed);
  std::printf("numerics: seed %llu, kernels %s, %zu configurations\n",
              static_cast<unsigned long long>(options.seed), options.backend->name,
              configurations.size());
  std::fflush(stdout);
  const auto start = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  Table table(options.axes);
  int num_shown = 0;
  int num_not_so = 0;
  for (std::size_t i = 0; i < configurations.size(); ++i) {
    const auto result = runner.run(configurations[i]);
    if (!result.ok()) {
      std::fprintf(stderr, "numerics: %s\n", result.error().message.c_str());
      return 2;
    }
    table.add(configurations[i], *result);
    num_not_so += result->not_so.empty() ? 0 : 1;
    print_differences(options, configurations[i], *result, num_shown);
    if ((i + 1) % kProgressEvery == 0) print_progress(i + 1, configurations.size(), seconds());
  }
  table.print();
  std::printf("\n%d of %d points differ from the same stream alone (%d references)\n",
              table.all().num_differing, table.all().num_points, runner.num_references());
  std::printf("%d of %d configurations were not as wanted; %.0f s\n", num_not_so,
              table.all().num_configurations, seconds());
  return table.all().num_differing > 0 ? 1 : num_not_so > 0 ? 2 : 0;
}

}  // namespace
}  // namespace lmtp::numerics

int main(int argc, char** argv) {
  const auto options = lmtp::numerics::parse_options({argv + 1, argv + argc});
  if (!options.ok()) {
    std::fprintf(stderr, "numerics: %s\n%s", options.error().message.c_str(),
                 lmtp::numerics::kUsage);
    return 2;
  }
  if (options->help) {
    std::printf("%s", lmtp::numerics::kUsage);
    return 0;
  }
  return lmtp::numerics::run(*options);
}
