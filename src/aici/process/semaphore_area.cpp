// [u32 length][bytes] between two semaphores: NAME-wr says that there is room, NAME-rd that there
// is a message.
#include <atomic>
#include <cstring>
#include <utility>

#include "lmtp/base/check.h"
#include "process/message_area.h"

namespace lmtp::aici {
namespace {

constexpr std::size_t kLengthBytes = 4;

class SemaphoreArea : public MessageArea {
 public:
  SemaphoreArea(SharedMemory memory, NamedSemaphore room, NamedSemaphore message)
      : memory_(std::move(memory)), room_(std::move(room)), message_(std::move(message)) {}

  std::size_t bytes_max() const override { return memory_.bytes().size() - kLengthBytes; }

  bool send(std::string_view message, Time until) override {
    LMTP_CHECK(!message.empty() && message.size() <= bytes_max(), message.size());
    if (!room_.wait_until(until)) return false;
    std::memcpy(payload(), message.data(), message.size());
    length().store(static_cast<std::uint32_t>(message.size()), std::memory_order_release);
    message_.post();
    return true;
  }

  Result<std::optional<std::string>> receive(Time until) override {
    if (!message_.wait_until(until)) return std::optional<std::string>();
    const std::uint32_t size = length().load(std::memory_order_acquire);
    if (size > bytes_max()) return too_long_answer(size, bytes_max());
    std::optional<std::string> message(std::in_place, reinterpret_cast<char*>(payload()), size);
    length().store(0, std::memory_order_release);
    room_.post();
    return message;
  }

  void unlink() override {
    memory_.unlink();
    room_.unlink();
    message_.unlink();
  }

 private:
  std::byte* payload() const { return memory_.bytes().data() + kLengthBytes; }
  std::atomic_ref<std::uint32_t> length() const {
    return std::atomic_ref(*reinterpret_cast<std::uint32_t*>(memory_.bytes().data()));
  }

  SharedMemory memory_;
  NamedSemaphore room_;
  NamedSemaphore message_;
};

}  // namespace

Error too_long_answer(std::uint32_t length, std::size_t bytes_max) {
  return {ErrorCode::kUnavailable, "an answer says that it has " + std::to_string(length) +
                                       " bytes; the shared memory has room for " +
                                       std::to_string(bytes_max)};
}

Result<std::unique_ptr<MessageArea>> make_semaphore_area(const std::string& name,
                                                         std::size_t size) {
  Result<SharedMemory> memory = SharedMemory::create(name + "-shm", size);
  if (!memory) return memory.error();
  Result<NamedSemaphore> room = NamedSemaphore::create(name + "-wr", 1);
  if (!room) return room.error();
  Result<NamedSemaphore> message = NamedSemaphore::create(name + "-rd", 0);
  if (!message) return message.error();
  return std::unique_ptr<MessageArea>(
      std::make_unique<SemaphoreArea>(*std::move(memory), *std::move(room), *std::move(message)));
}

}  // namespace lmtp::aici
