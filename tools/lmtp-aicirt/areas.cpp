#include "areas.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <ctime>
#include <optional>
#include <utility>

namespace lmtp::aicirt {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kWriting = UINT32_MAX;
constexpr long kSliceNs = 100'000'000;  // between two looks whether it is over

Error system_error(const std::string& name) {
  return {ErrorCode::kUnavailable, name + ": " + std::strerror(errno)};
}

Error wrong_size(std::size_t size, std::size_t room) {
  return {ErrorCode::kInvalid, "a message of " + std::to_string(size) +
                                   " bytes; there is room for " + std::to_string(room)};
}

std::uint32_t load(const unsigned char* word) {
  return __atomic_load_n(reinterpret_cast<const std::uint32_t*>(word), __ATOMIC_ACQUIRE);
}
void store(unsigned char* word, std::uint32_t value) {
  __atomic_store_n(reinterpret_cast<std::uint32_t*>(word), value, __ATOMIC_RELEASE);
}

// Ours or the engine's: whoever is first makes it.
class Semaphore {
 public:
  Semaphore(const std::string& name, unsigned initial)
      : semaphore_(sem_open(name.c_str(), O_CREAT, 0600, initial)) {}
  Semaphore(const Semaphore&) = delete;
  Semaphore& operator=(const Semaphore&) = delete;
  ~Semaphore() {
    if (is_open()) sem_close(semaphore_);
  }

  bool is_open() const { return semaphore_ != SEM_FAILED; }
  void post() { sem_post(semaphore_); }
  // False: over.
  bool wait(int busy_ms, const std::function<bool()>& is_over) {
    const auto busy_until = Clock::now() + std::chrono::milliseconds(busy_ms);
    while (Clock::now() < busy_until) {
      if (sem_trywait(semaphore_) == 0) return true;
    }
    while (true) {
      timespec until{};
      clock_gettime(CLOCK_REALTIME, &until);
      until.tv_nsec += kSliceNs;
      until.tv_sec += until.tv_nsec / 1'000'000'000;
      until.tv_nsec %= 1'000'000'000;
      if (sem_timedwait(semaphore_, &until) == 0) return true;
      if (errno != EINTR && is_over()) return false;
    }
  }

 private:
  sem_t* semaphore_;
};

// [length][payload] in the whole memory, and a semaphore for each side's turn.
class SemaphoreBox : public Inbox, public Outbox {
 public:
  SemaphoreBox(const AreaOptions& options, const std::string& name, Mapping memory)
      : options_(options),
        memory_(std::move(memory)),
        free_(options.prefix + name + "-wr", 1),
        full_(options.prefix + name + "-rd", 0) {}

  bool is_open() const { return free_.is_open() && full_.is_open(); }

  Result<std::string> receive() override {
    if (!full_.wait(options_.busy_wait_ms, options_.is_over)) return std::string();
    const std::uint32_t length = load(at());
    if (length == 0 || length > room()) return wrong_size(length, room());
    std::string message(reinterpret_cast<char*>(at()) + 4, length);
    store(at(), 0);
    free_.post();
    return message;
  }

  Result<void> send(const std::string& message) override {
    if (message.size() > room()) return wrong_size(message.size(), room());
    if (!free_.wait(0, options_.is_over)) return Error{ErrorCode::kStopping, "the engine is gone"};
    message.copy(reinterpret_cast<char*>(at()) + 4, message.size());
    store(at(), static_cast<std::uint32_t>(message.size()));
    full_.post();
    return {};
  }

 private:
  unsigned char* at() const { return memory_.bytes().data(); }
  std::size_t room() const { return memory_.bytes().size() - 4; }

  const AreaOptions options_;
  Mapping memory_;
  Semaphore free_;
  Semaphore full_;
};

// [word][payload] in half of the memory: commands are in the first, answers in the second.
class FutexBox : public Inbox, public Outbox {
 public:
  FutexBox(const AreaOptions& options, Mapping memory, bool is_second)
      : options_(options),
        memory_(std::move(memory)),
        size_(memory_.bytes().size() / 2),
        word_(memory_.bytes().data() + (is_second ? size_ : 0)) {}

  Result<std::string> receive() override {
    const auto busy_until = Clock::now() + std::chrono::milliseconds(options_.busy_wait_ms);
    std::uint32_t length = load(word_);
    while ((length == 0 || length == kWriting) && Clock::now() < busy_until) length = load(word_);
    while (length == 0 || length == kWriting) {
      const timespec slice{0, kSliceNs};
      syscall(SYS_futex, word_, FUTEX_WAIT, length, &slice, nullptr, 0);
      length = load(word_);
      if (length == 0 && options_.is_over()) return std::string();
    }
    if (length > room()) return wrong_size(length, room());
    std::string message(reinterpret_cast<char*>(word_) + 4, length);
    store(word_, 0);
    return message;
  }

  Result<void> send(const std::string& message) override {
    if (message.empty() || message.size() > room()) return wrong_size(message.size(), room());
    while (load(word_) != 0) {
      if (options_.is_over()) return Error{ErrorCode::kStopping, "the engine is gone"};
      usleep(100);
    }
    store(word_, kWriting);
    message.copy(reinterpret_cast<char*>(word_) + 4, message.size());
    store(word_, static_cast<std::uint32_t>(message.size()));
    syscall(SYS_futex, word_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    return {};
  }

 private:
  std::size_t room() const { return size_ - 16; }

  const AreaOptions options_;
  Mapping memory_;
  const std::size_t size_;
  unsigned char* const word_;
};

template <typename Box>
Result<std::unique_ptr<Box>> open_box(const AreaOptions& options, const std::string& name,
                                      bool is_answers) {
  const std::string memory_name = options.prefix + name + (options.futex ? "" : "-shm");
  Result<Mapping> memory = Mapping::open(memory_name, options.bytes, options.futex);
  if (!memory) return memory.error();
  if (options.futex) {
    return std::unique_ptr<Box>(
        std::make_unique<FutexBox>(options, *std::move(memory), is_answers));
  }
  auto box = std::make_unique<SemaphoreBox>(options, name, *std::move(memory));
  if (!box->is_open()) return system_error(options.prefix + name + ": no semaphore");
  return std::unique_ptr<Box>(std::move(box));
}

}  // namespace

Result<Mapping> Mapping::open(const std::string& name, std::size_t size, bool unlinks) {
  const int file = shm_open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return system_error(name);
  if (unlinks) shm_unlink(name.c_str());
  void* at = MAP_FAILED;
  if (ftruncate(file, static_cast<off_t>(size)) == 0) {
    at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  const int error = errno;
  close(file);
  errno = error;
  if (at == MAP_FAILED) return system_error(name);
  return Mapping(static_cast<unsigned char*>(at), size);
}

Mapping::Mapping(Mapping&& from) noexcept
    : at_(std::exchange(from.at_, nullptr)), size_(std::exchange(from.size_, 0)) {}

Mapping::~Mapping() {
  if (at_ != nullptr) munmap(at_, size_);
}

Result<std::unique_ptr<Inbox>> open_inbox(const AreaOptions& options, const std::string& name) {
  return open_box<Inbox>(options, name, false);
}

Result<std::unique_ptr<Outbox>> open_outbox(const AreaOptions& options, const std::string& name) {
  return open_box<Outbox>(options, name, true);
}

}  // namespace lmtp::aicirt
