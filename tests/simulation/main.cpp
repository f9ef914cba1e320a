// The simulation as a program, which tools/simulate starts: docs/simulation.md.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <string_view>

#include "lmtp/base/log.h"
#include "world.h"

namespace lmtp::simulation {
namespace {

constexpr rlim_t kSeedSecondsMax = 300;  // of the processor, for one seed: it hangs
constexpr int kSameAgain = 3;            // seeds that are run four times, in two processes

struct Arguments {
  Options options;
  int num_seeds = 1;
  double seconds = 0;  // of the processor; 0: num_seeds of them
  bool has_seed = false;
  bool shrinks = true;
  bool same_again = false;
  bool keeps_going = false;  // after a seed that fails
  std::string log;
};

std::string line_of(const Options& options) {
  std::string line = "tools/simulate --seed " + std::to_string(options.seed);
  if (options.num_clients > 0) line += " --clients " + std::to_string(options.num_clients);
  if (options.until_us > 0) line += " --until " + std::to_string(options.until_us);
  if (!options.without.empty()) line += " --without " + options.without;
  return line;
}

std::string run_here(const Options& options) {
  log::set_level(log::Level::kOff);
  World world(options);
  const Counts c = world.run();
  char text[256];
  std::snprintf(text, sizeof(text),
                "seed %llu: %lld operations, %lld streams, %lld tokens, %lld bytes, %lld steps, "
                "%lld faults, %.1f s, waits of %lld and %lld steps, log %016llx\n",
                static_cast<unsigned long long>(options.seed),
                static_cast<long long>(c.num_operations), static_cast<long long>(c.num_streams),
                static_cast<long long>(c.num_tokens), static_cast<long long>(c.num_bytes),
                static_cast<long long>(c.num_steps), static_cast<long long>(c.num_faults),
                static_cast<double>(c.virtual_us) / 1e6, static_cast<long long>(c.num_steps_waited),
                static_cast<long long>(c.num_steps_of_all),
                static_cast<unsigned long long>(c.log_hash));
  return text;
}

// In a process of its own, so that one that aborts or hangs is one that fails. `quiet`: it says
// nothing. `said`: what it says where it holds, which must be the same where there is something.
bool holds(const Options& options, bool quiet, std::string* said = nullptr) {
  std::fflush(stdout);
  int fds[2] = {-1, -1};
  if (::pipe(fds) != 0) fail("no descriptor left");
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{kSeedSecondsMax, kSeedSecondsMax};
    ::setrlimit(RLIMIT_CPU, &limit);
    if (quiet) {
      (void)std::freopen("/dev/null", "w", stdout);
      (void)std::freopen("/dev/null", "w", stderr);
    }
    const std::string text = run_here(options);
    if (said != nullptr && run_here(options) != text) fail("the same seed gave another log");
    (void)!::write(fds[1], text.data(), text.size());
    std::_Exit(0);
  }
  ::close(fds[1]);
  std::string text(256, '\0');
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(::read(fds[0], text.data(), 256), 0)));
  ::close(fds[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!quiet) std::fputs(text.c_str(), stdout);
  if (said != nullptr && !said->empty() && !text.empty() && *said != text) {
    std::fputs("the same seed gave another log in another process\n", stderr);
    return false;
  }
  if (said != nullptr) *said = text;
  if (!quiet && WIFSIGNALED(status)) {
    std::fprintf(stderr, "signal %d: %s\n", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Fewer clients, then an earlier end.
Options shrink(Options failing) {
  for (int num = 1; num <= 10; ++num) {
    Options fewer = failing;
    fewer.num_clients = num;
    if (holds(fewer, true)) continue;
    failing = fewer;
    break;
  }
  std::int64_t good = 0;
  std::int64_t bad = std::int64_t{1} << 26;
  while (bad - good > 1000) {
    Options earlier = failing;
    earlier.until_us = good + (bad - good) / 2;
    (holds(earlier, true) ? good : bad) = earlier.until_us;
  }
  Options earlier = failing;
  earlier.until_us = bad;
  return holds(earlier, true) ? failing : earlier;
}

double processor_seconds() {
  rusage use{};
  ::getrusage(RUSAGE_CHILDREN, &use);
  return static_cast<double>(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
         static_cast<double>(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

int run(const Arguments& arguments) {
  Options options = arguments.options;
  if (!arguments.log.empty()) {
    options.log = std::fopen(arguments.log.c_str(), "w");
    if (options.log == nullptr) {
      std::fprintf(stderr, "--log: %s cannot be written\n", arguments.log.c_str());
      return 2;
    }
    // Whole lines: a process that fails ends without a flush.
    std::setvbuf(options.log, nullptr, _IOLBF, std::size_t{1} << 16);
  }
  bool all_held = true;
  for (int i = 0; arguments.seconds > 0 || i < arguments.num_seeds; ++i, ++options.seed) {
    if (arguments.seconds > 0 && processor_seconds() >= arguments.seconds) break;
    std::string said;
    const bool twice = arguments.same_again && i < kSameAgain;
    bool held = holds(options, false, twice ? &said : nullptr);
    if (twice) held = held && holds(options, false, &said);
    if (held) continue;
    std::fprintf(stderr, "replay: %s\n", line_of(options).c_str());
    all_held = false;
    if (arguments.keeps_going) continue;
    if (arguments.shrinks) {
      options.log = nullptr;
      std::fprintf(stderr, "shrunk: %s\n", line_of(shrink(options)).c_str());
    }
    break;
  }
  return all_held ? 0 : 1;
}

int usage(int code) {
  std::fputs(
      "simulate [--seed N] [--seeds COUNT | --minutes M] [--clients N] [--until US]\n"
      "         [--without ORACLE] [--log FILE] [--no-shrink] [--same-again] [--keep-going]\n"
      "Runs a server and its clients on virtual time, by a seed, and checks every answer.\n"
      "Without --seed it begins with one by the clock. --minutes are of the processor.\n"
      "--without: accounts, agent, checks, edits, ends, errors, notices, text, time or tokens.\n",
      code == 0 ? stdout : stderr);
  return code;
}

int run_program(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--help") return usage(0);
    if (name == "--no-shrink") arguments.shrinks = false;
    if (name == "--same-again") arguments.same_again = true;
    if (name == "--keep-going") arguments.keeps_going = true;
    if (name == "--no-shrink" || name == "--same-again" || name == "--keep-going") continue;
    if (i + 1 == argc) return usage(2);
    const char* const value = argv[++i];
    if (name == "--seed") {
      arguments.options.seed = std::strtoull(value, nullptr, 10);
      arguments.has_seed = true;
    } else if (name == "--seeds") {
      arguments.num_seeds = std::atoi(value);
    } else if (name == "--minutes") {
      arguments.seconds = 60 * std::atof(value);
    } else if (name == "--clients") {
      arguments.options.num_clients = std::atoi(value);
    } else if (name == "--until") {
      arguments.options.until_us = std::atoll(value);
    } else if (name == "--without") {
      arguments.options.without = value;
    } else if (name == "--log") {
      arguments.log = value;
    } else {
      return usage(2);
    }
  }
  if (!arguments.has_seed) {
    arguments.options.seed = static_cast<std::uint64_t>(std::time(nullptr)) * 1000;
  }
  return run(arguments);
}

}  // namespace
}  // namespace lmtp::simulation

int main(int argc, char** argv) { return lmtp::simulation::run_program(argc, argv); }
