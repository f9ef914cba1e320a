#include "watchdog.h"

#include <atomic>
#include <memory>
#include <utility>

#include "lmtp/base/log.h"
#include "systemd.h"

namespace lmtp::tools {

bool EngineProgress::goes_on(const std::vector<registry::ModelStatus>& models) {
  bool all = true;
  std::map<std::string, std::int64_t> steps;
  for (const registry::ModelStatus& model : models) {
    if (model.state != registry::ModelState::kReady) continue;
    if (!model.workers.empty()) continue;  // of others, which a balancer watches by itself
    if (model.stats.num_running + model.stats.num_waiting == 0) continue;
    const std::string& name = model.description.name;
    const auto before = steps_.find(name);
    if (before != steps_.end() && before->second == model.stats.num_steps) all = false;
    steps[name] = model.stats.num_steps;
  }
  steps_ = std::move(steps);
  return all;
}

Watchdog::Watchdog(const registry::Models& models, server::Server& server)
    : models_(models), server_(server) {
  if (const auto interval = watchdog_interval()) {
    thread_ = std::thread([this, interval = *interval] { run(interval); });
  }
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::run(std::chrono::microseconds interval) {
  EngineProgress engines;
  // Shared with the io thread that answers, perhaps when this one is gone.
  const auto io_answers = std::make_shared<std::atomic<bool>>(true);
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, interval / 4, [this] { return stopping_; })) {
    const bool engines_go_on = engines.goes_on(models_.list());
    const bool io_goes_on = io_answers->exchange(false);
    server_.post([io_answers] { *io_answers = true; });
    if (engines_go_on && io_goes_on) {
      notify("WATCHDOG=1");
    } else {
      log::warning(
          std::string("no progress: ") +
          (io_goes_on ? "an engine has requests and takes no step" : "no io thread is free") +
          "; if that lasts, the service manager starts the server again");
    }
  }
}

}  // namespace lmtp::tools
