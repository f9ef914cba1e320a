// How programs print --help.
#pragma once

#include <CLI/Formatter.hpp>
#include <cstddef>
#include <string>

namespace lmtp::tools {

// CLI11's, with texts that wrap at the terminal's width (100 columns where there is none) and
// without the range of a number, which an error tells.
//
// Owner: the CLI::App that it is given to.
class HelpFormat : public CLI::Formatter {
 public:
  HelpFormat();

 private:
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_option_opts(const CLI::Option* option) const override;

  std::size_t width_;  // columns
};

}  // namespace lmtp::tools
