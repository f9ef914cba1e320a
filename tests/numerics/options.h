// The command line of the program `numerics`.
#pragma once

#include <cstdint>
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
  const kernels::Backend* backend = nullptr;
  std::string backend_option;  // as it was asked for, " --backend avx2"; empty: it was not
  std::vector<Axis> axes;      // with the values asked for alone
};

extern const char* const kUsage;

// The error names the argument and what it may be.
Result<Options> parse_options(const std::vector<std::string>& arguments);

}  // namespace lmtp::numerics
