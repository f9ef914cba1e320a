// Options by the environment: --max-models is LMTP_ARG_MAX_MODELS.
#pragma once

#include <CLI/App.hpp>
#include <string>

namespace lmtp::tools {

// Has `app`, whose options are complete, take from the environment what the command line does not
// give; but not in a child of --layout, whose parent has done so. Throws CLI11's error for a
// variable of that prefix that is none of an option.
void read_environment(CLI::App& app);

// `message`, an error of parsing, with the variable that its option was taken from, if it was.
std::string with_variable(const CLI::App& app, const std::string& message, int argc,
                          const char* const* argv);

}  // namespace lmtp::tools
