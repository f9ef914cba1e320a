// PrivateFolder: a folder among the temporary files, for the sockets of --layout.
#pragma once

#include <sys/types.h>

#include <string>

#include "lmtp/base/result.h"

namespace lmtp::tools {

// A new one, which no other user may enter. It goes with the object; where the process is killed, a
// process that waits for that removes it. What is left of others that were killed with theirs is
// removed when one is made.
class PrivateFolder {
 public:
  static Result<PrivateFolder> make();
  ~PrivateFolder();
  PrivateFolder(PrivateFolder&& other) noexcept;
  PrivateFolder& operator=(PrivateFolder&&) = delete;

  const std::string& path() const { return path_; }

 private:
  PrivateFolder(std::string path, int lock);
  void start_keeper();

  std::string path_;  // empty: moved from
  int lock_ = -1;     // of its file that says that somebody uses it; -1: no locks here
  int lives_ = -1;    // which the keeper reads, and finds closed when this process has ended
  pid_t keeper_ = -1;
};

}  // namespace lmtp::tools
