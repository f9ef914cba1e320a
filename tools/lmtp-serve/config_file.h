// --config and --print-config: the options in a TOML file, by the names that they have on the
// command line.
#pragma once

#include <CLI/CLI.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "lmtp/base/result.h"

namespace lmtp::tools {

// What MODEL is called in the file.
inline constexpr const char* kModelKey = "model";

// The file's options as arguments of the command line, `--port=8080`, without those that `given`, a
// parsed command line, has: of options that may be given several times, the command line's stand
// for all. Errors name the file, the line and, for an unknown option, the nearest one.
Result<std::vector<std::string>> config_arguments(const std::string& path, const CLI::App& given);

// Writes all options of `app`, which has been parsed, as such a file: as comments those that were
// not given, with their defaults, and secrets without theirs.
void print_config(const CLI::App& app, std::ostream& out);

}  // namespace lmtp::tools
