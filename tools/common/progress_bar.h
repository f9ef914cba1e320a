// A progress bar: one line on a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>

namespace lmtp::tools {

// The rate of a transfer over the last seconds. One thread.
class TransferRate {
 public:
  using Clock = std::chrono::steady_clock;

  // `bytes_done` in total, at `now`. REQUIRES: times do not decrease.
  void add(Clock::time_point now, std::int64_t bytes_done);
  // 0 while it is unknown.
  double bytes_per_second() const;

 private:
  struct Sample {
    Clock::time_point at;
    std::int64_t bytes_done;
  };
  std::deque<Sample> samples_;
};

// "120.3 of 548.1 MB, 12.3 MB/s, 0:35 left"; without the last two where the rate is 0.
std::string transfer_text(std::int64_t bytes_done, std::int64_t bytes_total,
                          double bytes_per_second);

// Writes to stderr, and only where that is a terminal. One thread.
class ProgressBar {
 public:
  explicit ProgressBar(std::string what);
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void show(int percent);
  // The same with the amount, the rate and the time left; a total of 0 is unknown. Limits how often
  // it redraws.
  void show_bytes(std::int64_t bytes_done, std::int64_t bytes_total);
  // Erases the line.
  void clear();

 private:
  void draw(int percent, const std::string& more);

  const std::string what_;
  const bool is_terminal_;
  bool is_shown_ = false;
  int shown_percent_ = -1;
  TransferRate rate_;
  TransferRate::Clock::time_point next_draw_;
};

}  // namespace lmtp::tools
