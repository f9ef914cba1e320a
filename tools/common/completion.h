// What a shell needs to complete a program's options.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace lmtp::tools {

// The script by which `shell`, one of bash, zsh and fish, completes the options of `app`, and their
// values where these are files or a few words; elsewhere `words` and files. REQUIRES: the shell is
// one of these.
std::string completion(const CLI::App& app, std::string_view shell,
                       const std::vector<std::string>& words);

// --completion SHELL, which prints that script and exits. `app` must have its name.
void add_completion(CLI::App& app, std::vector<std::string> words);

}  // namespace lmtp::tools
