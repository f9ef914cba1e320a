#include "common/help_format.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/Option.hpp>
#include <algorithm>
#include <string_view>

namespace lmtp::tools {
namespace {

constexpr std::size_t kTextBegin = 30;  // column of an option's text

std::size_t terminal_width() {
  constexpr std::size_t kLeast = 60;
  constexpr std::size_t kMost = 100;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kMost;
  return std::clamp<std::size_t>(size.ws_col, kLeast, kMost);
}

}  // namespace

HelpFormat::HelpFormat() : width_(terminal_width()) {}

std::string HelpFormat::make_option(const CLI::Option* option, bool is_positional) const {
  std::string line = "  " + make_option_name(option, is_positional) + make_option_opts(option);
  std::string out;
  if (line.size() + 1 > kTextBegin) {
    out = line + "\n";
    line.clear();
  }
  line.resize(kTextBegin, ' ');
  const std::string text = make_option_desc(option);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const bool is_first = line.size() == kTextBegin;
    if (!is_first && line.size() + 1 + end - at > width_) {
      out += line + "\n";
      line.assign(kTextBegin, ' ');
    } else if (!is_first) {
      line += ' ';
    }
    line.append(text, at, end - at);
    at = end + 1;
  }
  return out + line + "\n";
}

std::string HelpFormat::make_option_opts(const CLI::Option* option) const {
  std::string opts = CLI::Formatter::make_option_opts(option);
  for (const std::string_view begin : {":INT in [", ":UINT in [", ":FLOAT in ["}) {
    const std::size_t at = opts.find(begin);
    if (at != std::string::npos) opts.erase(at, opts.find(']', at) + 1 - at);
  }
  if (const std::size_t at = opts.find(":FILE"); at != std::string::npos) opts.erase(at, 5);
  if (const std::size_t at = opts.find(" (Env:LMTP_ARG_"); at != std::string::npos) {
    opts.erase(at, opts.find(')', at) + 1 - at);  // by a rule, which the footer says
  }
  return opts;
}

}  // namespace lmtp::tools
