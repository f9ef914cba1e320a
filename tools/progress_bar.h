// One line on a terminal that shows how far something is.
#pragma once

#include <string>

namespace lmtp::tools {

// Writes to stderr, and only where that is a terminal. One thread.
class ProgressBar {
 public:
  explicit ProgressBar(std::string what);
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void show(int percent);
  // Takes the line away again.
  void clear();

 private:
  const std::string what_;
  const bool is_terminal_;
  int shown_percent_ = -1;
};

}  // namespace lmtp::tools
