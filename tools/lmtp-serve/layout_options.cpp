#include "layout_options.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include "balance_options.h"
#include "lmtp/base/result.h"

namespace lmtp::tools {
namespace {

// What a balancer refuses to do for its clients, and what it does not speak.
constexpr const char* kRefused[] = {"--stdio",  "--aici",  "--aici-upload",
                                    "--aicirt", "--trace", "--allow-runtime-lora"};
// Of the options that the balancer takes, those that its servers have as well.
constexpr std::string_view kShared[] = {
    "--max-concurrent-requests", "--max-message-size", "--max-read-buffers",
    "--shutdown-timeout",        "--log-level",        "--log-format"};
// What is read here once, for all.
constexpr std::string_view kRead[] = {"--layout", "--config", "--print-config", "MODEL"};

bool is_one_of(const CLI::Option& option, const auto& names) {
  return std::ranges::any_of(names, [&](std::string_view name) {
    return option.get_single_name() == name || option.check_name(std::string(name));
  });
}

// 0 for what is no number from 1 on.
int count_of(std::string_view digits) {
  int count = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
  const bool is_number = error == std::errc() && end == digits.data() + digits.size();
  return is_number ? std::max(count, 0) : 0;
}

struct LayoutSize {
  int num_groups = 0;
  int num_devices = 0;  // of each
};

Result<LayoutSize> parse_layout(const std::string& text) {
  const std::size_t x = std::min(text.find('x'), text.size());
  const int num_groups = count_of(std::string_view(text).substr(0, x));
  const int num_devices = count_of(std::string_view(text).substr(std::min(x + 1, text.size())));
  if (num_groups == 0 || num_groups > kLayoutGroupsMax || num_devices == 0 ||
      num_devices > catalog::kTensorParallelMax) {
    return Error{ErrorCode::kInvalid,
                 "'" + text + "' is no layout; write GROUPSxDEVICES with 1 to " +
                     std::to_string(kLayoutGroupsMax) + " groups of 1 to " +
                     std::to_string(catalog::kTensorParallelMax) +
                     " devices, such as 2x1: two servers, each on one device, or without --cuda on "
                     "one half of the processors"};
  }
  return LayoutSize{num_groups, num_devices};
}

// What all servers are started with, but for MODEL: the options given that are not the balancer's.
std::vector<std::string> child_arguments(const CLI::App& app) {
  std::vector<std::string> arguments;
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0 || is_one_of(*option, kRead)) continue;
    if (is_for_balancer(*option) && !is_one_of(*option, kShared)) continue;
    for (const std::string& value : option->results()) {
      arguments.push_back("--" + option->get_single_name() + "=" + value);
    }
  }
  return arguments;
}

}  // namespace

void add_layout_options(CLI::App& app, RawOptions& raw) {
  app.add_option("--layout", raw.layout,
                 "GROUPSxDEVICES: so many servers of the named MODEL, each on so many devices "
                 "(--tensor-parallel-size) of CUDA_VISIBLE_DEVICES or of all, or on a CPU on its "
                 "share of the "
                 "processors; they are started again when they die. Streams go to them as through "
                 "`lmtp-serve balance`, which refuses FORK, BACKTRACK, controllers and the loading "
                 "of adapters")
      ->type_name("GxD");
}

void finish_layout_options(const CLI::App& app, const RawOptions& raw, ServeOptions& options) {
  if (raw.layout.empty()) return;
  const Result<LayoutSize> layout = parse_layout(raw.layout);
  if (!layout) throw CLI::ValidationError("--layout", layout.error().message);
  if (app.count("--tensor-parallel-size") > 0) {
    throw CLI::ValidationError("--tensor-parallel-size",
                               "--layout says it: write " + std::to_string(layout->num_groups) +
                                   "x" + std::to_string(options.tensor_parallel_size) +
                                   ", and leave this option out");
  }
  if (options.is_auto()) throw CLI::ValidationError("--layout", "is of one model: name MODEL");
  for (const char* refused : kRefused) {
    if (app.count(refused) == 0) continue;
    throw CLI::ValidationError(refused,
                               "does not go with --layout, in front of whose servers is a "
                               "balancer (docs/scaling.md); leave one of them out");
  }
  if (options.device != "cpu" && options.device != "cuda") {
    throw CLI::ValidationError("--device", "'" + options.device +
                                               "': with --layout write cpu or cuda, and "
                                               "CUDA_VISIBLE_DEVICES for the choice of devices");
  }
  options.num_children = layout->num_groups;
  options.tensor_parallel_size = layout->num_devices;
  options.child_arguments = child_arguments(app);
  if (layout->num_devices > 1) {
    options.child_arguments.push_back("--tensor-parallel-size=" +
                                      std::to_string(layout->num_devices));
  }
  limit_requests(app, static_cast<std::size_t>(layout->num_groups), options);
}

}  // namespace lmtp::tools
