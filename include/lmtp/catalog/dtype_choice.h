// --dtype and --kv-cache-dtype: what the user may write, and what it means on a CPU and on a
// device.
#pragma once

#include <optional>
#include <string>

#include "kernels/linear.h"
#include "lmtp/base/result.h"

namespace lmtp::catalog {

struct DtypeChoice {
  std::optional<kernels::WeightType> type;  // none: what memory or the device suggests
  std::string note;                         // where it is not quite what was asked for
};

Result<DtypeChoice> parse_dtype(const std::string& name, bool on_device);

// Of keys and values; none: by the weights (agent::kv_type).
Result<std::optional<kernels::ElementType>> parse_kv_cache_dtype(const std::string& name);

}  // namespace lmtp::catalog
