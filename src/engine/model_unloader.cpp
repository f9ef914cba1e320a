// How models go out again.
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "lmtp/base/log.h"
#include "manager_impl.h"

namespace lmtp::engine {

void give_back_memory() { malloc_trim(0); }

// From the closing of its gate on, which succeeds only where no stream is alive, nobody else can
// reach the model: requests that come now find no such name and load it anew, in their turn.
bool ModelManager::Impl::unload(Lock& lock, Model& model, const std::string& why) {
  if (stopping || model.engine == nullptr || !model.gate->close_if_idle()) return false;
  const std::string name = model.served.description.name;
  std::unique_ptr<Engine> engine = std::move(model.engine);
  remove(model);
  ++num_changes;
  changed.notify_all();  // it may be loading again, for its device was lost
  lock.unlock();
  engine->stop(0);
  engine.reset();
  give_back_memory();
  log::info("unloaded " + quoted_name(name) + " " + why);
  lock.lock();
  return true;
}

bool ModelManager::Impl::unload_least_recently_used(Lock& lock, const std::string& why) {
  std::vector<std::pair<Clock::time_point, Model*>> idle;
  for (const auto& [key, model] : models) {
    if (model->engine == nullptr) continue;
    const RequestGate::Usage usage = model->gate->usage();
    if (usage.num_alive == 0) idle.emplace_back(usage.last_used, model.get());
  }
  std::sort(idle.begin(), idle.end());
  // The first one that has not been asked for since. A refusal leaves the lock alone.
  return std::any_of(idle.begin(), idle.end(),
                     [&](const auto& entry) { return unload(lock, *entry.second, why); });
}

void ModelManager::Impl::run_keeper() {
  Lock lock(mutex);
  while (!stopping) {
    const Clock::time_point now = Clock::now();
    const Clock::time_point due = unload_due(now);
    if (due > now) {
      // Use only makes it later, so nobody needs to wake the keeper for that.
      keeper_wake.wait_until(lock, due);
    } else if (turn_taken) {
      changed.wait(lock, [this] { return !turn_taken || stopping; });
    } else {
      turn_taken = true;
      unload_idle(lock);
      end_turn();
    }
  }
}

// When the next model may have been idle for long enough.
ModelManager::Impl::Clock::time_point ModelManager::Impl::unload_due(Clock::time_point now) const {
  const std::chrono::milliseconds idle_max(options.unload_after_ms);
  Clock::time_point due = now + std::chrono::hours(24);
  for (const auto& [key, model] : models) {
    if (model->engine == nullptr) continue;
    const RequestGate::Usage usage = model->gate->usage();
    due = std::min(due, (usage.num_alive > 0 ? now : usage.last_used) + idle_max);
  }
  return due;
}

void ModelManager::Impl::unload_idle(Lock& lock) {
  const std::chrono::milliseconds idle_max(options.unload_after_ms);
  const std::string why = "after " + std::to_string(options.unload_after_ms / 1000) + " s of rest";
  const auto next = [&] {
    return std::find_if(models.begin(), models.end(), [&](const auto& entry) {
      if (entry.second->engine == nullptr) return false;
      const RequestGate::Usage usage = entry.second->gate->usage();
      return usage.num_alive == 0 && usage.last_used + idle_max <= Clock::now();
    });
  };
  // The table may be another after each.
  for (auto found = next(); found != models.end(); found = next()) {
    if (!unload(lock, *found->second, why)) return;
  }
}

}  // namespace lmtp::engine
