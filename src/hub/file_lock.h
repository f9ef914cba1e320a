// A lock that excludes other processes, and other holders in this one: flock, as Python's filelock
// (and with it huggingface_hub) takes it on Linux.
#pragma once

#include <string>

#include "lmtp/base/result.h"

namespace lmtp::hub {

// The file is not removed on release: two waiters could then lock two different files. The kernel
// releases the lock when the process ends. Owner: one thread.
class FileLock {
 public:
  FileLock() = default;
  ~FileLock() { release(); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  // Whether the lock is held now; never waits. An error if the file system has no locks.
  Result<bool> try_acquire(const std::string& path);
  void release();

 private:
  int file_ = -1;
};

}  // namespace lmtp::hub
