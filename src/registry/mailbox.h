// Mailbox: the messages to the registry's actor.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include "lmtp/base/bounded_queue.h"
#include "lmtp/base/runtime.h"

namespace lmtp::registry {

class RegistryActor;

// Owner: shared by the registry and all that may outlive it (routes, jobs). Any thread.
//
// The queue needs no limit, since what is sent has one: questions, whose sender waits for the
// answer (one for each thread); the end of a job, and at most a hundred steps of its progress; the
// loss of an engine; a cancel of each stream whose connection is gone; and that a model has become
// idle, once each time that the actor asks for it.
class Mailbox {
 public:
  using Message = std::function<void(RegistryActor&)>;

  // False if the actor has ended.
  bool post(Message message) { return queue.push_control(std::move(message)); }

  // The same for messages that a model waits for, which must not be lost: retried until there is
  // memory for the queue's entry. False if the actor has ended.
  bool report(Message message) noexcept {
    for (;;) {
      try {
        return queue.push_control(std::move(message));  // moved from only if queued
      } catch (const std::bad_alloc&) {
        runtime::sleep_for(kReportRetry);
      }
    }
  }

  // Returns what the actor answers, or throws what it throws; nullopt if it has ended. The actor
  // never blocks, so this is short. REQUIRES: not the actor's thread, nor one that holds a lock.
  template <typename Ask>
  auto ask(const Ask& question) {
    using Answer = decltype(question(std::declval<RegistryActor&>()));
    std::mutex mutex;
    runtime::Condition answered;
    std::optional<Answer> answer;
    std::exception_ptr failure;
    const bool posted = post([&](RegistryActor& actor) {
      const std::lock_guard lock(mutex);  // to the end: the sender's stack has all of these
      try {
        answer.emplace(question(actor));
      } catch (...) {
        failure = std::current_exception();
      }
      answered.notify_one();
    });
    if (!posted) return std::optional<Answer>();
    std::unique_lock lock(mutex);
    answered.wait(lock, [&] { return answer || failure; });
    if (failure) std::rethrow_exception(failure);
    return answer;
  }

  static constexpr std::chrono::milliseconds kReportRetry{10};

  BoundedQueue<Message> queue{0};
  // A model waits for memory: the actor asks for a message when another has become idle. The sender
  // resets this.
  std::atomic<bool> wants_memory = false;
};

}  // namespace lmtp::registry
