#include "common/progress_bar.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

namespace lmtp::tools {
namespace {

constexpr int kNumCells = 30;
constexpr int kNumCellsMin = 8;          // in a narrow terminal
constexpr int kColumnsWithoutSize = 80;  // if the terminal's width is unknown
constexpr std::chrono::milliseconds kDrawEvery{100};
constexpr std::chrono::seconds kRateWindow{5};
constexpr std::chrono::milliseconds kSampleEvery{250};
constexpr double kShownSecondsMax = 100 * 3600.0;

int num_columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col
                                                                         : kColumnsWithoutSize;
}

std::string one_decimal(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f", value);
  return text.data();
}

std::string time_text(double seconds) {
  const long total = std::lround(seconds);
  std::array<char, 32> text{};
  if (total < 3600) {
    std::snprintf(text.data(), text.size(), "%ld:%02ld", total / 60, total % 60);
  } else {
    std::snprintf(text.data(), text.size(), "%ld:%02ld:%02ld", total / 3600, total / 60 % 60,
                  total % 60);
  }
  return text.data();
}

}  // namespace

void TransferRate::add(Clock::time_point now, std::int64_t bytes_done) {
  // Bytes that are dropped and downloaded again must not give a negative rate.
  if (!samples_.empty() && bytes_done < samples_.back().bytes_done) samples_.clear();
  if (!samples_.empty() && now - samples_.back().at < kSampleEvery) return;
  samples_.push_back({now, bytes_done});
  while (samples_.size() > 2 && now - samples_.front().at > kRateWindow) samples_.pop_front();
}

double TransferRate::bytes_per_second() const {
  if (samples_.size() < 2) return 0;
  const std::chrono::duration<double> time = samples_.back().at - samples_.front().at;
  return static_cast<double>(samples_.back().bytes_done - samples_.front().bytes_done) /
         time.count();
}

std::string transfer_text(std::int64_t bytes_done, std::int64_t bytes_total,
                          double bytes_per_second) {
  const bool large = bytes_total >= 10'000'000'000;
  const double unit = large ? 1e9 : 1e6;
  std::string text = one_decimal(static_cast<double>(bytes_done) / unit) + " of " +
                     one_decimal(static_cast<double>(bytes_total) / unit) + (large ? " GB" : " MB");
  if (bytes_per_second <= 0) return text;
  text += ", " + one_decimal(bytes_per_second / 1e6) + " MB/s";
  const double seconds = static_cast<double>(bytes_total - bytes_done) / bytes_per_second;
  return seconds < kShownSecondsMax ? text + ", " + time_text(seconds) + " left" : text;
}

ProgressBar::ProgressBar(std::string what)
    : what_(std::move(what)), is_terminal_(isatty(STDERR_FILENO) != 0) {}

void ProgressBar::show(int percent) {
  if (!is_terminal_ || percent == shown_percent_) return;
  draw(percent, "");
}

void ProgressBar::show_bytes(std::int64_t bytes_done, std::int64_t bytes_total) {
  if (!is_terminal_) return;
  const auto now = TransferRate::Clock::now();
  if (bytes_total > 0) rate_.add(now, bytes_done);
  if (now < next_draw_) return;
  next_draw_ = now + kDrawEvery;
  if (bytes_total <= 0) return draw(0, "asking the hub");
  draw(static_cast<int>(100 * bytes_done / bytes_total),
       transfer_text(bytes_done, bytes_total, rate_.bytes_per_second()));
}

void ProgressBar::draw(int percent, const std::string& more) {
  shown_percent_ = percent;
  is_shown_ = true;
  // A line that wraps could not be overwritten.
  const int width = std::max(num_columns() - 1, 1);
  const std::string end = "] " + std::to_string(percent) + " %" + (more.empty() ? "" : "  " + more);
  const int num_others = static_cast<int>(what_.size() + end.size()) + 2;
  const int num_cells = std::clamp(width - num_others, kNumCellsMin, kNumCells);
  const int num_full = std::clamp(percent, 0, 100) * num_cells / 100;
  std::string line = what_ + " [" + std::string(static_cast<std::size_t>(num_full), '#') +
                     std::string(static_cast<std::size_t>(num_cells - num_full), ' ') + end;
  if (line.size() > static_cast<std::size_t>(width)) line.resize(static_cast<std::size_t>(width));
  std::fprintf(stderr, "\r%s\x1b[K", line.c_str());
}

void ProgressBar::clear() {
  if (!is_shown_) return;
  is_shown_ = false;
  shown_percent_ = -1;
  std::fputs("\r\x1b[K", stderr);
}

}  // namespace lmtp::tools
