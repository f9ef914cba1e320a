// A thread with a stack of a given size: llguidance follows the names of a grammar by recursion.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "lmtp/base/check.h"
#include "lmtp/base/result.h"
#include "lmtp/base/runtime.h"

namespace lmtp::constraint {

// Owner: one thread, which joins or detaches it. In a simulation the stack is as any thread's.
class DeepThread {
 public:
  // REQUIRES: !joinable(). The stack takes memory as far as it is used, but all of its addresses:
  // the error, kOverloaded, is that of a machine that gives no thread or no such stack.
  Result<void> start(std::size_t stack_bytes, std::function<void()> run) {
    if (runtime::is_simulated()) {
      simulated_ = runtime::Thread(std::move(run));
      return {};
    }
    pthread_attr_t attributes;
    int error = pthread_attr_init(&attributes);
    LMTP_CHECK(error == 0, error);
    error = pthread_attr_setstacksize(&attributes, stack_bytes);
    LMTP_CHECK(error == 0, error);
    auto owned = std::make_unique<std::function<void()>>(std::move(run));
    const int failed = pthread_create(&thread_, &attributes, call, owned.get());
    error = pthread_attr_destroy(&attributes);
    LMTP_CHECK(error == 0, error);
    if (failed != 0) {
      return Error{ErrorCode::kOverloaded, "no thread with a stack of " +
                                               std::to_string(stack_bytes >> 20) +
                                               " MiB can be started: " + std::strerror(failed) +
                                               "; see the limits of threads and of address space"};
    }
    static_cast<void>(owned.release());  // NOLINT(bugprone-unused-return-value): call() has it
    joinable_ = true;
    return {};
  }

  bool joinable() const { return joinable_ || simulated_.joinable(); }
  bool is_current() const {
    if (simulated_.joinable()) return simulated_.is_current();
    return joinable_ && pthread_equal(thread_, pthread_self()) != 0;
  }
  void join() {
    if (simulated_.joinable()) return simulated_.join();
    const int error = pthread_join(thread_, nullptr);
    LMTP_CHECK(error == 0, error);
    joinable_ = false;
  }
  void detach() {
    if (simulated_.joinable()) return simulated_.detach();
    const int error = pthread_detach(thread_);
    LMTP_CHECK(error == 0, error);
    joinable_ = false;
  }

 private:
  static void* call(void* run) {
    const std::unique_ptr<std::function<void()>> owned(static_cast<std::function<void()>*>(run));
    (*owned)();
    return nullptr;
  }

  pthread_t thread_ = {};
  bool joinable_ = false;
  runtime::Thread simulated_;  // in its place
};

}  // namespace lmtp::constraint
