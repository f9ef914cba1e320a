#include "options.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <sstream>

#include "kernels/device.h"
#include "row_dependent.h"
#include "source_dir.h"

namespace lmtp::numerics {
namespace {

Result<const kernels::Backend*> find_backend(const std::string& name) {
  std::string names;
  for (const kernels::Backend* backend : kernels::cpu_backends()) {
    if (backend->name == name) return backend;
    names += std::string(names.empty() ? "" : ", ") + backend->name;
  }
  return Error{ErrorCode::kInternal, "--backend: this processor has " + names};
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream stream(list);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

// Restricts the axis to the values of the list; "model" takes any.
Result<void> choose(Axis& axis, const std::string& list) {
  const std::vector<std::string> wanted = split(list);
  for (const std::string& value : wanted) {
    if (axis.name == "model" || std::ranges::count(axis.values, value) > 0) continue;
    std::string values;
    for (const std::string& one : axis.values) values += (values.empty() ? "" : ", ") + one;
    return Error{ErrorCode::kInternal, "--" + axis.name + ": '" + value + "' is none of " + values};
  }
  if (wanted.empty()) return Error{ErrorCode::kInternal, "--" + axis.name + ": no value"};
  axis.values = wanted;
  return {};
}

Result<void> take_value(Options& options, const std::string& name, const std::string& value) {
  if (name == "--seed") {
    const auto [end, code] =
        std::from_chars(value.data(), value.data() + value.size(), options.seed);
    if (code == std::errc() && end == value.data() + value.size()) return {};
    return Error{ErrorCode::kInternal, "--seed: '" + value + "' is no whole number from 0 on"};
  }
  if (name == "--device") return {};  // taken before all others
  if (name == "--backend") {
    const auto backend = find_backend(value);
    if (!backend.ok()) return backend.error();
    options.backends = {*backend};
    return {};
  }
  for (Axis& axis : options.axes) {
    if (name == "--" + axis.name) return choose(axis, value);
  }
  return Error{ErrorCode::kInternal, "there is no option " + name};
}

// Nothing for "cpu".
Result<std::optional<int>> find_device(const std::vector<std::string>& arguments) {
  const auto option = std::ranges::find(arguments, "--device");
  if (option == arguments.end() || option + 1 == arguments.end()) return std::optional<int>();
  const std::string& name = *(option + 1);
  if (name == "cpu") return std::optional<int>();
  int number = 0;
  if (name != "cuda") {
    const char* end = name.data() + name.size();
    const auto parsed =
        std::from_chars(name.data() + std::min<std::size_t>(5, name.size()), end, number);
    if (!name.starts_with("cuda:") || parsed.ec != std::errc() || parsed.ptr != end) {
      return Error{ErrorCode::kInternal, "--device: '" + name + "' is none of cpu, cuda, cuda:N"};
    }
  }
  const kernels::cuda::Probe probe = kernels::cuda::probe(number);
  if (!probe.available) return Error{ErrorCode::kInternal, "no CUDA: " + probe.reason};
  return std::optional<int>(number);
}

}  // namespace

const char* const kUsage =
    R"(usage: numerics [OPTION]... [--AXIS VALUE[,VALUE]...]...

Runs every stream of the grid beside its batch mates and alone, and compares the bits of the
results.
Exit code 0: all equal; 1: some differ; 2: a configuration did not come about as the grid wants it.

  --seed N         of streams and arrivals (1)
  --sample         a few configurations in which any two values of different axes meet, and
                   fewer for the kernels of each slower instruction set
  --backend NAME   only the kernels of this one, such as avx2 (the fastest of this processor)
  --device D       cuda or cuda:N: the kernels of that device, and each stream alone without graphs
  --break-linear   a linear whose bits depend on the number of rows: the grid must fail
  --break-combine  the same of the sum over a row's experts

  --model          demo, a folder, ...: as lmtp-serve MODEL
  --batch          1, 2, 3, 7, 8, 31, 64: streams
  --chunk          16, 64, 512: tokens of a prompt in one step at most
  --cache          cold, warm (the same ran before), partial (a prefix that ends inside a block)
  --preempted      no, yes
  --edited         no, yes: forked, or backtracked with tokens put back, while they run
  --drafts         0, 5: speculation, at most so many of a stream in a step; on a device 0
  --adapters       no, yes: three of four streams have one of three; on a device no
  --threads        1, 2; on a device 1
  --ranks          1, 2, 4: the model is divided among so many; on a device 1
  --dtype          f32, bf16, int8, int4; on a device f16, too; bf16+fp8: with keys and values in
                   fp8_e4m3; f32+bf16, f32+f16: in these
)";

Result<Options> parse_options(const std::vector<std::string>& arguments) {
  Options options;
  const auto device = find_device(arguments);
  if (!device.ok()) return device.error();
  options.cuda_device = *device;
  const std::string tests = testing::source_dir() + "/tests/";
  // The third one has the second one's weights, and a window of a block in one of its layers.
  std::vector<std::string> models = {"demo", tests + "goldens/ranks/llama-two-kv",
                                     tests + "numerics/smollm3-window-16"};
  if (!device->has_value()) models.push_back(tests + "goldens/experts/qwen2-moe");
  options.axes = make_axes(models, device->has_value());
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = arguments[i];
    if (name == "--help" || name == "-h") {
      options.help = true;
    } else if (name == "--sample") {
      options.sample = true;
    } else if (name == "--break-linear") {
      options.backends = {&row_dependent_backend()};
    } else if (name == "--break-combine") {
      options.backends = {&row_dependent_combine_backend()};
    } else if (i + 1 == arguments.size()) {
      return Error{ErrorCode::kInternal, name + ": no value, or no such option"};
    } else if (const auto taken = take_value(options, name, arguments[++i]); !taken.ok()) {
      return taken.error();
    }
  }
  if (options.cuda_device.has_value()) {
    options.backends = {&kernels::cuda::backend()};
  } else if (options.backends.empty()) {
    options.backends = kernels::cpu_backends();
    if (!options.sample) options.backends.resize(1);
  }
  return options;
}

std::string backend_option(const kernels::Backend& backend) {
  if (&backend == &kernels::cpu_backend()) return "";
  if (backend.device != nullptr) return " --device cuda";
  if (&backend == &row_dependent_backend()) return " --break-linear";
  if (&backend == &row_dependent_combine_backend()) return " --break-combine";
  return std::string(" --backend ") + backend.name;
}

}  // namespace lmtp::numerics
