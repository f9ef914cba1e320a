// Shared memory and semaphores by name, as the side that makes and removes them.
#pragma once

#include <semaphore.h>

#include <chrono>
#include <cstddef>
#include <span>
#include <string>

#include "lmtp/base/result.h"

namespace lmtp::aici {

using Time = std::chrono::steady_clock::time_point;

// Memory that another process opens by name, which is "/" and more. Owner: a message area or a
// runtime's process; its end unmaps it and removes the name.
class SharedMemory {
 public:
  // All zeros, and there as a whole: where /dev/shm lacks the room that is an error now, not a
  // SIGBUS when it is written to. What had this name loses it.
  static Result<SharedMemory> create(std::string name, std::size_t size);
  SharedMemory(SharedMemory&& from) noexcept;
  SharedMemory& operator=(SharedMemory&&) = delete;
  ~SharedMemory();

  std::span<std::byte> bytes() const { return bytes_; }
  // The memory stays, for those who have it open. Any number of times.
  void unlink();

 private:
  SharedMemory(std::string name, std::span<std::byte> bytes);

  std::string name_;  // empty: unlinked
  std::span<std::byte> bytes_;
};

// Owner: a message area. Any thread.
class NamedSemaphore {
 public:
  static Result<NamedSemaphore> create(std::string name, unsigned value);
  NamedSemaphore(NamedSemaphore&& from) noexcept;
  NamedSemaphore& operator=(NamedSemaphore&&) = delete;
  ~NamedSemaphore();

  // Spins for a moment, then sleeps; false where it was not posted until then.
  bool wait_until(Time until);
  void post();
  void unlink();

 private:
  NamedSemaphore(std::string name, sem_t* semaphore);

  std::string name_;
  sem_t* semaphore_;
};

// Removes what servers that have ended have left in /dev/shm: names that begin as theirs do,
// "/lmtp-PID-", of processes that are no more. Of another machine's view (a container) a process
// may only seem to be no more: what is younger than `age_min`, beyond which no name is needed,
// stays.
void remove_left_names(std::chrono::seconds age_min);

// How long a wait spins before it sleeps: about what waking up takes.
inline constexpr std::chrono::microseconds kSpinTime{50};

}  // namespace lmtp::aici
