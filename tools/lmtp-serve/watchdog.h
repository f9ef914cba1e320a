// Tells a service manager that the server goes on, as long as it does.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lmtp/registry/models.h"
#include "lmtp/server/server.h"

namespace lmtp::tools {

// Whether engines go on, from one look to the next. One thread.
class EngineProgress {
 public:
  // Whether each model that has had requests since the last call has taken a step meanwhile.
  bool goes_on(const std::vector<registry::ModelStatus>& models);

 private:
  std::map<std::string, std::int64_t> steps_;  // of the models that had requests, by name
};

// Owner: main. Has a thread where the manager wants to be told (WATCHDOG_USEC), which tells it four
// times in that while; no longer where neither an io thread is free for so long, nor an engine that
// has requests takes a step. A step must then be shorter than three quarters of it.
class Watchdog {
 public:
  // Both outlive it.
  Watchdog(const registry::Models& models, server::Server& server);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void run(std::chrono::microseconds interval);

  const registry::Models& models_;
  server::Server& server_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace lmtp::tools
