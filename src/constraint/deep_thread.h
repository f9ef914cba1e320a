// A thread with a stack of a given size: llguidance follows the names of a grammar by recursion.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "lmtp/base/check.h"

namespace lmtp::constraint {

// Owner: one thread, which joins or detaches it.
class DeepThread {
 public:
  DeepThread() = default;
  // The stack takes memory as far as it is used.
  DeepThread(std::size_t stack_bytes, std::function<void()> run) {
    pthread_attr_t attributes;
    int error = pthread_attr_init(&attributes);
    LMTP_CHECK(error == 0, error);
    error = pthread_attr_setstacksize(&attributes, stack_bytes);
    LMTP_CHECK(error == 0, error);
    auto owned = std::make_unique<std::function<void()>>(std::move(run));
    error = pthread_create(&thread_, &attributes, start, owned.get());
    LMTP_CHECK(error == 0, error);
    error = pthread_attr_destroy(&attributes);
    LMTP_CHECK(error == 0, error);
    static_cast<void>(owned.release());  // NOLINT(bugprone-unused-return-value): start() has it
    joinable_ = true;
  }

  bool joinable() const { return joinable_; }
  bool is_current() const { return joinable_ && pthread_equal(thread_, pthread_self()) != 0; }
  void join() {
    const int error = pthread_join(thread_, nullptr);
    LMTP_CHECK(error == 0, error);
    joinable_ = false;
  }
  void detach() {
    const int error = pthread_detach(thread_);
    LMTP_CHECK(error == 0, error);
    joinable_ = false;
  }

 private:
  static void* start(void* run) {
    const std::unique_ptr<std::function<void()>> owned(static_cast<std::function<void()>*>(run));
    (*owned)();
    return nullptr;
  }

  pthread_t thread_ = {};
  bool joinable_ = false;
};

}  // namespace lmtp::constraint
