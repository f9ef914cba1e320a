// The command line of the program `numerics`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "grid.h"
#include "kernels/backend.h"
#include "lmtp/base/result.h"

namespace lmtp::numerics {

struct Options {
  std::uint64_t seed = 1;
  bool sample = false;
  bool help = false;
  std::optional<int> cuda_device;  // none: the processor
  // The requested one; else the fastest, followed in a sample by all others of this processor.
  std::vector<const kernels::Backend*> backends;
  std::vector<Axis> axes;  // restricted to the requested values
};

// The option that selects it, " --backend avx2"; empty: it is the fastest.
std::string backend_option(const kernels::Backend& backend);

extern const char* const kUsage;

// The error names the argument and the allowed values.
Result<Options> parse_options(const std::vector<std::string>& arguments);

}  // namespace lmtp::numerics
