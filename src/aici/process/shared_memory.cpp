#include "process/shared_memory.h"

#include <fcntl.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): kill() is in no other
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "lmtp/base/check.h"
#include "lmtp/base/text.h"

namespace lmtp::aici {
namespace {

constexpr mode_t kMode = 0600;  // a runtime runs as the same user; prompts are nobody else's

Error system_failure(const std::string& name, const std::string& what, int error) {
  return {ErrorCode::kUnavailable, "/dev/shm" + name + ": " + what + ": " + std::strerror(error)};
}

timespec timespec_of(Time time) {
  const auto since = time.time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since);
  return {seconds.count(), std::chrono::nanoseconds(since - seconds).count()};
}

// Of "lmtp-PID-..." or "sem.lmtp-PID-..."; 0: it is none of these.
pid_t maker_of(std::string_view name) {
  if (name.starts_with("sem.")) name.remove_prefix(4);
  constexpr std::string_view kOurs = "lmtp-";
  if (!name.starts_with(kOurs)) return 0;
  name.remove_prefix(kOurs.size());
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
  const bool is_whole = error == std::errc() && end != name.data() + name.size() && *end == '-';
  return is_whole && pid > 0 ? pid : 0;
}

}  // namespace

void remove_left_names(std::chrono::seconds age_min) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/dev/shm", error)) {
    const pid_t pid = maker_of(entry.path().filename().string());
    if (pid == 0 || kill(pid, 0) == 0 || errno != ESRCH) continue;
    const auto written = fs::last_write_time(entry.path(), error);
    if (error || written + age_min > fs::file_time_type::clock::now()) continue;
    fs::remove(entry.path(), error);
  }
}

SharedMemory::SharedMemory(std::string name, std::span<std::byte> bytes)
    : name_(std::move(name)), bytes_(bytes) {}

SharedMemory::SharedMemory(SharedMemory&& from) noexcept
    : name_(std::exchange(from.name_, {})), bytes_(std::exchange(from.bytes_, {})) {}

SharedMemory::~SharedMemory() {
  unlink();
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

Result<SharedMemory> SharedMemory::create(std::string name, std::size_t size) {
  shm_unlink(name.c_str());
  const int file = shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, kMode);
  if (file < 0) return system_failure(name, "cannot be made", errno);
  int error = 0;
  do {
    error = posix_fallocate(file, 0, static_cast<off_t>(size));
  } while (error == EINTR);
  void* const at =
      error == 0 ? mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  if (error == 0 && at == MAP_FAILED) error = errno;
  close(file);
  if (error != 0) {
    shm_unlink(name.c_str());
    return system_failure(name, size_text(static_cast<std::int64_t>(size)) + " of shared memory",
                          error);
  }
  return SharedMemory(std::move(name), {static_cast<std::byte*>(at), size});
}

void SharedMemory::unlink() {
  if (!name_.empty()) shm_unlink(name_.c_str());
  name_.clear();
}

NamedSemaphore::NamedSemaphore(std::string name, sem_t* semaphore)
    : name_(std::move(name)), semaphore_(semaphore) {}

NamedSemaphore::NamedSemaphore(NamedSemaphore&& from) noexcept
    : name_(std::exchange(from.name_, {})), semaphore_(std::exchange(from.semaphore_, nullptr)) {}

NamedSemaphore::~NamedSemaphore() {
  unlink();
  if (semaphore_ != nullptr) sem_close(semaphore_);
}

Result<NamedSemaphore> NamedSemaphore::create(std::string name, unsigned value) {
  sem_unlink(name.c_str());
  sem_t* const semaphore = sem_open(name.c_str(), O_CREAT | O_EXCL, kMode, value);
  if (semaphore == SEM_FAILED) return system_failure(name, "no semaphore", errno);
  return NamedSemaphore(std::move(name), semaphore);
}

bool NamedSemaphore::wait_until(Time until) {
  const Time spin_until = std::chrono::steady_clock::now() + kSpinTime;
  do {
    if (sem_trywait(semaphore_) == 0) return true;
  } while (std::chrono::steady_clock::now() < spin_until);
  const timespec time = timespec_of(until);
  while (sem_clockwait(semaphore_, CLOCK_MONOTONIC, &time) != 0) {
    if (errno == ETIMEDOUT) return false;
    LMTP_CHECK(errno == EINTR, std::strerror(errno));
  }
  return true;
}

// More than one message is never there: a runtime that posts for ever must not end this process.
void NamedSemaphore::post() { (void)sem_post(semaphore_); }

void NamedSemaphore::unlink() {
  if (!name_.empty()) sem_unlink(name_.c_str());
  name_.clear();
}

}  // namespace lmtp::aici
