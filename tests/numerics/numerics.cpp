// numerics: tests the numerics contract; started by tools/numerics, described in docs/numerics.md.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "grid.h"
#include "options.h"
#include "run.h"

namespace lmtp::numerics {
namespace {

constexpr int kDifferencesShown = 10;

// Sums over the configurations that have one value of one axis, or over all.
struct AxisSums {
  int num_configurations = 0;
  int num_points = 0;
  int num_differing = 0;
  int num_preempted = 0;  // streams
  std::int64_t num_preemptions = 0;
  std::int64_t num_partial_hits = 0;
  std::int64_t num_cached_tokens = 0;
  std::int64_t num_scored_tokens = 0;
  std::int64_t num_accepted_drafts = 0;
  std::int64_t num_refused_drafts = 0;
  int max_batch_rows = 0;
  int max_chunk = 0;

  void add(const ConfigurationResult& result) {
    const BatchReport& report = result.report;
    ++num_configurations;
    num_points += static_cast<int>(result.differences.size());
    num_differing += result.num_differing();
    num_preempted += static_cast<int>(
        std::ranges::count_if(report.outcomes, [](const auto& o) { return o.is_preempted(); }));
    num_preemptions += report.num_preemptions;
    num_partial_hits += report.num_partial_hits;
    num_cached_tokens += report.num_cached_tokens;
    num_scored_tokens += report.num_scored_tokens;
    num_accepted_drafts += report.num_accepted_drafts;
    num_refused_drafts += report.num_refused_drafts;
    max_batch_rows = std::max(max_batch_rows, report.max_batch_rows);
    max_chunk = std::max(max_chunk, report.max_chunk);
  }
};

class Table {
 public:
  explicit Table(const std::vector<Axis>& axes) : axes_(axes) {
    for (const Axis& axis : axes) by_value_.emplace_back(axis.values.size());
  }

  // Results added from here on were computed by these kernels.
  void begin(const std::string& backend) { by_backend_.emplace_back(backend, AxisSums{}); }

  void add(const Configuration& configuration, const ConfigurationResult& result) {
    all_.add(result);
    by_backend_.back().second.add(result);
    for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
      by_value_[axis][static_cast<std::size_t>(configuration.at[axis])].add(result);
    }
  }

  void print() const {
    std::printf("\n%-10s %-10s %7s %7s %9s %11s %8s %8s %8s %8s %8s %8s %9s\n", "", "", "points",
                "differ", "preempted", "preemptions", "cached", "scored", "partial", "drafts",
                "drafts", "longest", "together");
    std::printf("%-10s %-10s %7s %7s %9s %11s %8s %8s %8s %8s %8s %8s %9s\n", "", "", "", "",
                "streams", "", "tokens", "tokens", "hits", "accepted", "refused", "chunk",
                "streams");
    for (std::size_t i = 0; i < by_backend_.size(); ++i) {
      print_row(i == 0 ? "kernels" : "", by_backend_[i].first, by_backend_[i].second);
    }
    for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
      for (std::size_t value = 0; value < by_value_[axis].size(); ++value) {
        const std::string& name = axes_[axis].values[value];
        print_row(value == 0 ? axes_[axis].name : "", name.substr(name.rfind('/') + 1),
                  by_value_[axis][value]);
      }
    }
    print_row("all", "", all_);
  }

  const AxisSums& all() const { return all_; }

 private:
  static void print_row(const std::string& axis, const std::string& value, const AxisSums& sums) {
    const auto number = [](std::int64_t count) { return static_cast<long long>(count); };
    std::printf("%-10s %-10s %7d %7d %9d %11lld %8lld %8lld %8lld %8lld %8lld %8d %9d\n",
                axis.c_str(), value.c_str(), sums.num_points, sums.num_differing,
                sums.num_preempted, number(sums.num_preemptions), number(sums.num_cached_tokens),
                number(sums.num_scored_tokens), number(sums.num_partial_hits),
                number(sums.num_accepted_drafts), number(sums.num_refused_drafts), sums.max_chunk,
                sums.max_batch_rows);
  }

  const std::vector<Axis>& axes_;
  std::vector<std::pair<std::string, AxisSums>> by_backend_;
  std::vector<std::vector<AxisSums>> by_value_;  // [axis][value]
  AxisSums all_;
};

// `how` are the options that run the configuration again.
void print_differences(const std::string& how, const ConfigurationResult& result, int& num_shown) {
  if (!result.not_so.empty()) std::printf("NOT SO: %s: %s\n", how.c_str(), result.not_so.c_str());
  for (std::size_t i = 0; i < result.differences.size(); ++i) {
    if (result.differences[i].empty() || ++num_shown > kDifferencesShown + 1) continue;
    if (num_shown > kDifferencesShown) {
      std::printf("(more of them are only counted)\n");
      continue;
    }
    std::printf("DIFFERS: %s: stream %zu, %s\n", how.c_str(), i, result.differences[i].c_str());
  }
  std::fflush(stdout);
}

// A grid, or a sample of it, as it goes.
class Grid {
 public:
  explicit Grid(const Options& options) : options_(options), table_(options.axes) {}

  Result<void> run(const kernels::Backend& backend, const std::vector<Configuration>& those) {
    std::printf("numerics: seed %llu, kernels %s, %zu configurations\n",
                static_cast<unsigned long long>(options_.seed), backend.name, those.size());
    std::fflush(stdout);
    table_.begin(backend.name);
    Runner runner({options_.seed, &backend, options_.cuda_device});
    for (const std::string& model : options_.axes.front().values) {
      if (const Result<void> added = runner.add_model(model); !added.ok()) return added.error();
    }
    const std::string how =
        "--seed " + std::to_string(options_.seed) + backend_option(backend) + " ";
    for (std::size_t i = 0; i < those.size(); ++i) {
      const auto result = runner.run(those[i]);
      if (!result.ok()) return result.error();
      table_.add(those[i], *result);
      num_not_so_ += result->not_so.empty() ? 0 : 1;
      print_differences(how + those[i].options(options_.axes), *result, num_shown_);
      // Printed at once: if the run is aborted later, these still count.
      std::printf("%zu of %zu: %zu points, %d differ%s\n", i + 1, those.size(),
                  result->differences.size(), result->num_differing(),
                  result->not_so.empty() ? "" : ", NOT SO");
      std::fflush(stdout);
    }
    num_references_ += runner.num_references();
    return {};
  }

  // The program's exit code.
  int finish() const {
    table_.print();
    const AxisSums& all = table_.all();
    std::printf("\n%d of %d points differ from the same stream alone (%d references)\n",
                all.num_differing, all.num_points, num_references_);
    std::printf("%d of %d configurations were not as wanted; %.0f s\n", num_not_so_,
                all.num_configurations, seconds());
    return all.num_differing > 0 ? 1 : num_not_so_ > 0 ? 2 : 0;
  }

 private:
  using Clock = std::chrono::steady_clock;
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  const Options& options_;
  const Clock::time_point start_ = Clock::now();
  Table table_;
  int num_shown_ = 0;
  int num_not_so_ = 0;
  int num_references_ = 0;
};

int run(const Options& options) {
  const auto all = all_configurations(options.axes);
  Grid grid(options);
  for (const kernels::Backend* backend : options.backends) {
    const bool first = backend == options.backends.front();
    const auto done = grid.run(*backend, !options.sample ? all
                                         : first         ? sample(all, options.seed)
                                                         : small_sample(all, options.seed));
    if (!done.ok()) {
      std::fprintf(stderr, "numerics: %s\n", done.error().message.c_str());
      return 2;
    }
  }
  return grid.finish();
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
