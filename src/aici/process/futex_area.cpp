// [u32 word][bytes] in each half of the memory; this side writes the first half, the runtime the
// second. The word is 0 where the half is free, all ones while it is being written, else the
// length of the message.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstring>
#include <thread>
#include <utility>

#include "lmtp/base/check.h"
#include "process/message_area.h"

namespace lmtp::aici {
namespace {

constexpr std::size_t kHeaderBytes = 4;
constexpr std::size_t kSpareBytes = 16;  // of each half, which the protocol leaves
constexpr std::uint32_t kBeingWritten = 0xFFFFFFFF;

bool is_message(std::uint32_t word) { return word != 0 && word != kBeingWritten; }

class FutexArea : public MessageArea {
 public:
  FutexArea(SharedMemory memory, Direction direction) : memory_(std::move(memory)) {
    const std::span<std::byte> all = memory_.bytes();
    half_ =
        direction == Direction::kCommands ? all.first(all.size() / 2) : all.subspan(all.size() / 2);
  }

  std::size_t bytes_max() const override { return half_.size() - kSpareBytes; }

  // Nobody else writes here, so the word may stay 0 until all is there: a runtime that looks
  // sees nothing or a whole message.
  bool send(std::string_view message, Time until) override {
    LMTP_CHECK(!message.empty() && message.size() <= bytes_max(), message.size());
    // The reader frees the half without a wake-up.
    constexpr std::chrono::microseconds kNap{200};
    if (!spin([this] { return word().load(std::memory_order_acquire) == 0; })) {
      while (word().load(std::memory_order_acquire) != 0) {
        if (std::chrono::steady_clock::now() >= until) return false;
        std::this_thread::sleep_for(kNap);
      }
    }
    std::memcpy(half_.data() + kHeaderBytes, message.data(), message.size());
    word().store(static_cast<std::uint32_t>(message.size()), std::memory_order_release);
    (void)call_futex(FUTEX_WAKE, INT_MAX, nullptr);
    return true;
  }

  Result<std::optional<std::string>> receive(Time until) override {
    (void)spin([this] { return is_message(word().load(std::memory_order_acquire)); });
    std::uint32_t seen = word().load(std::memory_order_acquire);
    while (!is_message(seen)) {
      const auto left = until - std::chrono::steady_clock::now();
      if (left <= std::chrono::steady_clock::duration::zero()) return std::optional<std::string>();
      const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
      const timespec time{seconds.count(), std::chrono::nanoseconds(left - seconds).count()};
      (void)call_futex(FUTEX_WAIT, seen, &time);
      seen = word().load(std::memory_order_acquire);
    }
    if (seen > bytes_max()) return too_long_answer(seen, bytes_max());
    std::optional<std::string> message(
        std::in_place, reinterpret_cast<const char*>(half_.data() + kHeaderBytes), seen);
    word().store(0, std::memory_order_release);
    return message;
  }

  void unlink() override { memory_.unlink(); }

 private:
  std::atomic_ref<std::uint32_t> word() const {
    return std::atomic_ref(*reinterpret_cast<std::uint32_t*>(half_.data()));
  }
  // Not a private futex: the other side is another process.
  long call_futex(int op, std::uint32_t value, const timespec* time) const {
    return syscall(SYS_futex, half_.data(), op, value, time, nullptr, 0);
  }
  template <typename Ready>
  static bool spin(const Ready& is_ready) {
    const Time until = std::chrono::steady_clock::now() + kSpinTime;
    do {
      if (is_ready()) return true;
    } while (std::chrono::steady_clock::now() < until);
    return false;
  }

  SharedMemory memory_;
  std::span<std::byte> half_;
};

}  // namespace

Result<std::unique_ptr<MessageArea>> make_futex_area(const std::string& name, std::size_t size,
                                                     Direction direction) {
  Result<SharedMemory> memory = SharedMemory::create(name, size);
  if (!memory) return memory.error();
  return std::unique_ptr<MessageArea>(std::make_unique<FutexArea>(*std::move(memory), direction));
}

}  // namespace lmtp::aici
