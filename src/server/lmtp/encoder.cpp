#include "encoder.h"

#include <vector>

namespace lmtp::server {

void Encoder::start() {
  thread_ = std::thread([this] {
    while (true) {
      std::vector<std::function<void()>> jobs = jobs_.wait_drain();
      if (jobs.empty()) return;  // it is closed
      for (std::function<void()>& job : jobs) {
        if (!stopping_) job();
        job = nullptr;
      }
    }
  });
}

void Encoder::stop() {
  stopping_ = true;
  jobs_.close();
  if (thread_.joinable()) thread_.join();
}

}  // namespace lmtp::server
