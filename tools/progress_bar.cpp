#include "progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace lmtp::tools {
namespace {

constexpr int kNumCells = 30;

}  // namespace

ProgressBar::ProgressBar(std::string what)
    : what_(std::move(what)), is_terminal_(isatty(STDERR_FILENO) != 0) {}

void ProgressBar::show(int percent) {
  if (!is_terminal_ || percent == shown_percent_) return;
  shown_percent_ = percent;
  const auto num_full = static_cast<std::size_t>(std::clamp(percent, 0, 100) * kNumCells / 100);
  const std::string full(num_full, '#');
  const std::string empty(kNumCells - num_full, ' ');
  std::fprintf(stderr, "\r%s [%s%s] %3d %%", what_.c_str(), full.c_str(), empty.c_str(), percent);
}

void ProgressBar::clear() {
  if (shown_percent_ < 0) return;
  shown_percent_ = -1;
  std::fputs("\r\x1b[K", stderr);
}

}  // namespace lmtp::tools
