// What the servers of --layout are started with.
#pragma once

#include <string>
#include <vector>

#include "children.h"
#include "lmtp/base/result.h"
#include "serve_options.h"

namespace lmtp::tools {

// One for each of options.num_children, with a Unix socket in `folder` and its share of the devices
// or of the processors. An error says how many of these there are, where they are too few; may take
// a second on devices.
Result<std::vector<ChildPlan>> plan_children(const ServeOptions& options,
                                             const std::string& folder);

}  // namespace lmtp::tools
