#include "private_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace lmtp::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBeginning = "lmtp-serve-";
constexpr const char* kLockName = "/lock";
constexpr int kTries = 3;

// The lock of a folder of this user, -1 where it has none or another process has it, with an errno
// of ENOLCK where there are no locks.
int take_lock(const std::string& folder, int flags) {
  errno = 0;
  struct stat status {};
  const bool is_own =
      lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid();
  if (!is_own) return -1;
  const int lock =
      open((folder + kLockName).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
  if (lock < 0) return -1;
  struct stat held {};
  struct stat named {};
  const bool is_taken = flock(lock, LOCK_EX | LOCK_NB) == 0 && fstat(lock, &held) == 0 &&
                        stat((folder + kLockName).c_str(), &named) == 0 &&
                        held.st_ino == named.st_ino && held.st_uid == geteuid();
  if (is_taken) return lock;
  const int why = errno;
  close(lock);
  errno = why;
  return -1;
}

void remove_leftovers(const fs::path& parent) {
  std::error_code error;
  fs::directory_iterator entry(parent, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string path = entry->path().string();
    if (!entry->path().filename().string().starts_with(kBeginning)) continue;
    const int lock = take_lock(path, 0);
    if (lock < 0) continue;
    std::error_code ignored;
    fs::remove_all(path, ignored);
    close(lock);
  }
}

}  // namespace

Result<PrivateFolder> PrivateFolder::make() {
  std::error_code error;
  const fs::path parent = fs::temp_directory_path(error);
  if (!error) remove_leftovers(parent);
  for (int i = 0; i < kTries && !error; ++i) {
    std::string path = (parent / (std::string(kBeginning) + "XXXXXX")).string();
    if (mkdtemp(path.data()) == nullptr) {
      error.assign(errno, std::generic_category());
    } else if (const int lock = take_lock(path, O_CREAT); lock >= 0 || errno == ENOLCK) {
      return PrivateFolder(std::move(path), lock);
    }
  }
  return Error{ErrorCode::kUnavailable,
               "--layout: no folder for sockets can be made among the temporary files: " +
                   (error ? error.message() : "others remove it") + "; TMPDIR names another place"};
}

PrivateFolder::PrivateFolder(std::string path, int lock) : path_(std::move(path)), lock_(lock) {
  start_keeper();
}

// Without one the folder is left where this process is killed, until another is made.
void PrivateFolder::start_keeper() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  keeper_ = fork();
  if (keeper_ != 0) {
    sigprocmask(SIG_SETMASK, &before, nullptr);
    close(ends[0]);
    lives_ = ends[1];
    return;
  }
  setpgid(0, 0);
  prctl(PR_SET_NAME, "lmtp-folder");
  dup2(ends[0], 0);
  syscall(SYS_close_range, 1U, ~0U, 0);
  char byte;
  while (read(0, &byte, 1) < 0 && errno == EINTR) {
  }
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  _exit(0);
}

PrivateFolder::PrivateFolder(PrivateFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})),
      lock_(std::exchange(other.lock_, -1)),
      lives_(std::exchange(other.lives_, -1)),
      keeper_(std::exchange(other.keeper_, -1)) {}

PrivateFolder::~PrivateFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
  if (lives_ >= 0) close(lives_);
  if (keeper_ > 0) waitpid(keeper_, nullptr, 0);
  if (lock_ >= 0) close(lock_);
}

}  // namespace lmtp::tools
