// --layout GROUPSxDEVICES: so many servers of one model behind one balancer.
#pragma once

#include <CLI/CLI.hpp>

#include "raw_options.h"

namespace lmtp::tools {

inline constexpr int kLayoutGroupsMax = 64;

// `raw` outlives `app`.
void add_layout_options(CLI::App& app, RawOptions& raw);

// Throws CLI11's errors. Without effect where there is no layout.
void finish_layout_options(const CLI::App& app, const RawOptions& raw, ServeOptions& options);

}  // namespace lmtp::tools
