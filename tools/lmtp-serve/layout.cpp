#include "layout.h"

#include <cstdlib>
#include <utility>

#include "device_names.h"
#include "kernels/device.h"
#include "lmtp/base/processors.h"
#include "lmtp/base/text.h"

namespace lmtp::tools {
namespace {

// `each`: of those that a server needs.
Error too_few(const ServeOptions& options, std::size_t count, std::size_t each, const char* what) {
  const std::string size = std::to_string(each);
  const std::size_t most = count / each;
  const std::string there = (count == 1 ? "is " : "are ") + std::to_string(count);
  const std::string needed = each == 1 ? "as many " : size + " each of the ";
  return {ErrorCode::kInvalid,
          "--layout: " + std::to_string(options.num_children) + " servers need " + needed + what +
              ", and there " + there + "; " +
              (most == 0 ? "write fewer for each server"
                         : "at most " + std::to_string(most) + "x" + size + " is possible")};
}

Result<void> give_devices(const ServeOptions& options, std::vector<ChildPlan>& plans) {
  const kernels::cuda::Probe probe = kernels::cuda::probe();
  if (!probe.available) return Error{ErrorCode::kUnavailable, "no CUDA: " + probe.reason};
  const std::vector<std::string> devices =
      device_names(std::getenv("CUDA_VISIBLE_DEVICES"), probe.num_devices);
  const auto each = static_cast<std::size_t>(options.tensor_parallel_size);
  if (devices.size() / each < plans.size()) {
    return too_few(options, devices.size(), each, "CUDA devices");
  }
  for (std::size_t i = 0; i < plans.size() * each; ++i) {
    std::string& own = plans[i / each].devices;
    own += (own.empty() ? "" : ",") + devices[i];
  }
  return {};
}

Result<void> give_processors(const ServeOptions& options, std::vector<ChildPlan>& plans) {
  const std::vector<Processor> processors = find_processors();
  if (processors.size() < plans.size()) return too_few(options, processors.size(), 1, "processors");
  auto shares = split_processors(processors, options.num_children);
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if (options.num_threads == 0) {
      plans[i].arguments.push_back("--threads=" + std::to_string(shares[i].ids.size()));
    }
    plans[i].processors = std::move(shares[i]);
  }
  return {};
}

}  // namespace

Result<std::vector<ChildPlan>> plan_children(const ServeOptions& options,
                                             const std::string& folder) {
  std::vector<ChildPlan> plans(static_cast<std::size_t>(options.num_children));
  for (std::size_t i = 0; i < plans.size(); ++i) {
    plans[i].name = "child-" + std::to_string(i + 1);
    plans[i].listen = std::string(kUnixScheme) + folder + "/" + plans[i].name;
    plans[i].arguments = options.child_arguments;
  }
  const Result<void> given =
      options.device == "cpu" ? give_processors(options, plans) : give_devices(options, plans);
  if (!given) return given.error();
  // MODEL comes behind an option that takes one value, and is no first word, such as `doctor`.
  for (ChildPlan& plan : plans) {
    plan.arguments.push_back("--listen=" + plan.listen);
    plan.arguments.push_back(options.model);
  }
  return plans;
}

}  // namespace lmtp::tools
