// A lock that excludes other processes, and other holders in this one: flock, as Python's filelock
// (and with it huggingface_hub) takes it on Linux.
#pragma once

#include <string>

#include "lmtp/base/result.h"

namespace lmtp::hub {

// The file stays when the lock is gone: removed, it would be two files to two waiters. Owner: one
// thread. The kernel lets go of it when the process ends, however it ends.
class FileLock {
 public:
  FileLock() = default;
  ~FileLock() { release(); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  // Whether it is held now; never waits. An error where this disk has no locks.
  Result<bool> try_acquire(const std::string& path);
  void release();

 private:
  int file_ = -1;
};

}  // namespace lmtp::hub
