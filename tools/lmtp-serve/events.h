// The events that lmtp-serve's main thread waits for.
#pragma once

#include <csignal>
#include <mutex>
#include <string>

#include "lmtp/base/result.h"

namespace lmtp::tools {

// SIGTERM or SIGINT, the end of loading or of --stdio's input, and the loss of the device or model;
// SIGHUP where there is something to reload. Owner: main().
class Events {
 public:
  // Signals are blocked here and in the threads that begin later; in one that unblocks them, as the
  // CUDA driver's do, they are passed on to the calling thread.
  // REQUIRES: the main thread, and no other one has been started.
  explicit Events(bool reloads);
  ~Events();
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;

  // Called once, by the engine's thread.
  void on_loaded(const Result<void>& outcome);

  // Any thread. The device is gone, or the only model could not be loaded again after its loss.
  void on_gone(const std::string& reason);

  // Called once, by the session of --stdio. All is answered; or the output cannot be written.
  void on_input_ended(const Result<void>& outcome);

  enum class Kind { kSignal, kReload, kGone, kInputEnded, kLoaded, kTimeout };

  // REQUIRES: timeout_ms < 0 waits for ever. kLoaded comes once.
  Kind wait(int timeout_ms);

  Result<void> load_outcome();
  std::string gone_reason();

  // Restores the default: a further signal ends the process at once.
  void stop_catching();

 private:
  Kind take_signal();

  sigset_t signals_{};
  int signal_fd_ = -1;
  int loaded_fd_ = -1;
  int gone_fd_ = -1;
  int input_ended_fd_ = -1;
  bool loaded_seen_ = false;
  std::mutex mutex_;
  Result<void> outcome_;
  std::string gone_reason_;
};

}  // namespace lmtp::tools
