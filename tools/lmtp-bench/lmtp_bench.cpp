// lmtp-bench: a load generator for LMTP servers.
#include <cstdio>
#include <ctime>
#include <fstream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "bench_options.h"
#include "lmtp/client/interrupts.h"
#include "load_generator.h"
#include "report_json.h"
#include "report_plot.h"
#include "report_table.h"
#include "server_info.h"
#include "sweep.h"

namespace lmtp::tools {
namespace {

constexpr int kInterruptedExit = 130;

int fail(const std::string& message, int code) {
  std::fprintf(stderr, "lmtp-bench: %s\n", message.c_str());
  return code;
}

std::string now_iso() {
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

bool write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::trunc);
  file << text;
  file.close();
  return file.good();
}

// Checks before the sweep, which may take hours, that its reports can be written.
Result<void> check_writable(const BenchOptions& options) {
  for (const std::string& path : {options.json_path, options.plot_path}) {
    if (path.empty() || path == "-") continue;
    if (!std::ofstream(path, std::ios::app).good()) {
      return Error{ErrorCode::kUnavailable, "cannot write " + path};
    }
  }
  return {};
}

Result<void> warm_up(const LoadOptions& load, client::Interrupts& interrupts) {
  const auto stats = run_load(load, &interrupts);
  if (!stats) return stats.error();
  if (stats->num_completed == 0 && !stats->interrupted) {
    return Error{ErrorCode::kUnavailable,
                 "the warm-up failed: " +
                     (stats->errors.empty() ? "no answers" : stats->errors.begin()->first)};
  }
  return {};
}

bool went_well(const LoadStats& stats) {
  return stats.num_tokens > 0 && stats.num_failed == 0 && stats.errors.empty() &&
         stats.num_stray == 0 && stats.num_not_sent == 0;
}

int write_reports(const BenchOptions& options, const ServerInfo& server, const std::string& date,
                  const std::vector<SweepResult>& results) {
  const bool to_stdout = options.json_path == "-";
  if (results.size() > 1 && !to_stdout) std::fputs(("\n" + sweep_text(results)).c_str(), stdout);
  if (!options.json_path.empty()) {
    const std::string json = report_json(options, server, date, results);
    if (to_stdout) {
      std::fputs(json.c_str(), stdout);
    } else if (!write_file(options.json_path, json)) {
      return fail("cannot write " + options.json_path, 1);
    }
  }
  if (options.plot_path.empty()) return 0;
  const std::string name = options.load.model.empty() ? "" : ", " + options.load.model;
  const std::string heading = "lmtp-bench" + name + ", " + options.dataset_name + ", " + date;
  if (!write_file(options.plot_path, sweep_svg(heading, results))) {
    return fail("cannot write " + options.plot_path, 1);
  }
  return 0;
}

int run(int argc, const char* const* argv) {
  auto parsed = parse_bench_options(argc, argv);
  if (const int* code = std::get_if<int>(&parsed)) return *code;
  const auto& options = std::get<BenchOptions>(parsed);
  if (auto good = check_writable(options); !good) return fail(good.error().message, 2);
  const auto server = ask_server(options.load);
  if (!server) return fail(server.error().message, 1);
  auto sweep = plan_sweep(options, *server);
  if (!sweep) return fail(sweep.error().message, 2);
  if (!sweep->note.empty()) fail(sweep->note, 0);

  client::Interrupts interrupts;
  const std::string date = now_iso();
  if (sweep->warmup) {
    if (auto good = warm_up(*sweep->warmup, interrupts); !good) {
      return interrupts.take() ? kInterruptedExit : fail(good.error().message, 1);
    }
  }
  if (options.json_path != "-") std::fputs(header_text(options).c_str(), stdout);
  std::vector<SweepResult> results;
  bool good = true;
  bool interrupted = interrupts.take();
  for (SweepPoint& point : sweep->points) {
    if (interrupted) break;
    auto stats = run_load(point.load, &interrupts);
    interrupted = interrupts.take();
    if (!stats && interrupted) break;  // while it connected
    if (!stats) {
      fail(describe(point) + ": " + stats.error().message, 1);
      good = false;
      break;
    }
    good = good && went_well(*stats);
    results.push_back({std::move(point), std::move(*stats)});
    if (options.json_path == "-") continue;
    std::fputs(point_text(options, results.back()).c_str(), stdout);
    std::fflush(stdout);
  }
  const int written = results.empty() ? 0 : write_reports(options, *server, date, results);
  if (interrupted) return kInterruptedExit;
  return good ? written : 1;
}

}  // namespace
}  // namespace lmtp::tools

int main(int argc, char** argv) { return lmtp::tools::run(argc, argv); }
