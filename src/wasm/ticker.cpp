#include "ticker.h"

#include <utility>

namespace lmtp::wasm {

namespace {

// Calls come one after the other: waking the thread for each would cost more than the call.
constexpr int kIdleTicksMax = 20;

}  // namespace

Ticker::Ticker(std::chrono::milliseconds period, std::function<void()> tick)
    : period_(period), tick_(std::move(tick)), thread_([this] { run(); }) {}

Ticker::~Ticker() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Ticker::begin() {
  num_running_.fetch_add(1);
  if (!is_asleep_.load()) return;
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void Ticker::run() {
  std::unique_lock lock(mutex_);
  int num_idle = 0;
  while (!stops_) {
    if (num_idle < kIdleTicksMax) {
      changed_.wait_for(lock, period_, [this] { return stops_; });
      tick_();
      num_idle = num_running_.load() == 0 ? num_idle + 1 : 0;
      continue;
    }
    // Whoever begins sees this, or is seen by what waits.
    is_asleep_ = true;
    changed_.wait(lock, [this] { return stops_ || num_running_.load() > 0; });
    is_asleep_ = false;
    num_idle = 0;
  }
}

}  // namespace lmtp::wasm
