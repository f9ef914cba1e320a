// fetch_model from the command line, for tests that need a hub on the other side.
//
//   hub_fetch NAME [--tokenizer] [--local] [--threads N] [--stop-at BYTES] [--stop-after MS]
//             [--progress] [--max BYTES] [--headers] [--refuse config|weights]
//
// --headers shows what is known of the weights before they come: "header NAME SIZE JSON".
// Prints the folder, once a thread; an error goes to stderr as it is, and the exit code is 1.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "lmtp/hub/fetch.h"

namespace lmtp::hub {
namespace {

using Clock = std::chrono::steady_clock;

struct Arguments {
  std::string name;
  FetchOptions options;
  int num_threads = 1;
  std::int64_t stop_at_bytes = INT64_MAX;
  std::chrono::milliseconds stop_after{INT32_MAX};
  bool progress = false;
  bool headers = false;
  std::string refused;
};

// Answers of a server that looks at models before their weights.
void set_accept(const Arguments& arguments, FetchOptions& options) {
  options.accept_config = [&arguments](const std::string& folder) -> Result<void> {
    if (arguments.refused == "config") return Error{ErrorCode::kInternal, folder + " is refused"};
    return {};
  };
  if (!arguments.headers && arguments.refused != "weights") return;
  options.accept_weights = [&arguments](const std::string& folder,
                                        const std::vector<WeightHeader>& headers) -> Result<void> {
    for (const WeightHeader& header : headers) {
      if (!arguments.headers) break;
      std::fprintf(stderr, "header %s %lld %s\n", header.file.c_str(),
                   static_cast<long long>(header.file_size),
                   header.bytes.substr(std::min<std::size_t>(8, header.bytes.size())).c_str());
    }
    if (arguments.refused == "weights") {
      return Error{ErrorCode::kInternal, "the weights of " + folder + " are refused"};
    }
    return {};
  };
}

std::optional<Arguments> parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const bool has_value = i + 1 < argc;
    if (word == "--tokenizer") {
      arguments.options.purpose = Purpose::kTokenizer;
    } else if (word == "--local") {
      arguments.options.allow_download = false;
    } else if (word == "--progress") {
      arguments.progress = true;
    } else if (word == "--max" && has_value) {
      arguments.options.download_bytes_max = std::atoll(argv[++i]);
    } else if (word == "--headers") {
      arguments.headers = true;
    } else if (word == "--refuse" && has_value) {
      arguments.refused = argv[++i];
    } else if (word == "--threads" && has_value) {
      arguments.num_threads = std::atoi(argv[++i]);
    } else if (word == "--stop-at" && has_value) {
      arguments.stop_at_bytes = std::atoll(argv[++i]);
    } else if (word == "--stop-after" && has_value) {
      arguments.stop_after = std::chrono::milliseconds(std::atoll(argv[++i]));
    } else if (arguments.name.empty() && !word.starts_with("--")) {
      arguments.name = word;
    } else {
      return std::nullopt;
    }
  }
  return arguments;
}

// Whether this thread got its folder.
bool fetch(const Arguments& arguments) {
  FetchOptions options = arguments.options;
  options.retry_pause = std::chrono::milliseconds(5);  // the hub is on this machine
  set_accept(arguments, options);
  const auto end = Clock::now() + arguments.stop_after;
  options.progress = [&arguments, end](const FetchProgress& progress) {
    if (arguments.progress) {
      std::fprintf(stderr, "progress %lld %lld\n", static_cast<long long>(progress.bytes_done),
                   static_cast<long long>(progress.bytes_total));
    }
    return progress.bytes_done < arguments.stop_at_bytes && Clock::now() < end;
  };
  const auto source = fetch_model(arguments.name, options);
  if (source) {
    std::printf("%s\n", source->folder.c_str());
  } else {
    std::fprintf(stderr, "%s\n", source.error().message.c_str());
  }
  return source.ok();
}

int run(int argc, char** argv) {
  const auto arguments = parse(argc, argv);
  if (!arguments) {
    std::fputs("usage: see hub_fetch.cpp\n", stderr);
    return 2;
  }
  if (arguments->num_threads == 1) return fetch(*arguments) ? 0 : 1;
  std::atomic<int> num_failed = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < arguments->num_threads; ++i) {
    threads.emplace_back([&arguments, &num_failed] {
      if (!fetch(*arguments)) ++num_failed;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return num_failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace lmtp::hub

int main(int argc, char** argv) { return lmtp::hub::run(argc, argv); }
