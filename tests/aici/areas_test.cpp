// The two ends of an area of shared memory, each written on its own, in one process.
#include "lmtp-aicirt/areas.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "lmtp-aicirt/rows.h"
#include "process/bias_rows.h"
#include "process/message_area.h"
#include "process/shared_memory.h"

namespace lmtp::aici {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr std::size_t kBytes = std::size_t{64} << 10;

Time soon() { return std::chrono::steady_clock::now() + milliseconds(5); }
Time much_later() { return std::chrono::steady_clock::now() + std::chrono::minutes(2); }

class AreasTest : public ::testing::TestWithParam<bool> {
 protected:
  AreasTest() : prefix_("/lmtp-areas-" + std::to_string(getpid()) + "-") {
    to_runtime_ = make("cmd", Direction::kCommands);
    from_runtime_ = make("resp", Direction::kAnswers);
    options_.prefix = prefix_;
    options_.bytes = kBytes;
    options_.futex = GetParam();
    options_.busy_wait_ms = 0;
    options_.is_over = [this] { return is_over_.load(); };
    inbox_ = *aicirt::open_inbox(options_, "cmd");
    outbox_ = *aicirt::open_outbox(options_, "resp");
  }
  std::unique_ptr<MessageArea> make(const std::string& name, Direction direction) const {
    auto made = GetParam() ? make_futex_area(prefix_ + name, kBytes, direction)
                           : make_semaphore_area(prefix_ + name, kBytes);
    return *std::move(made);
  }
  std::string shm_name(const std::string& name) const {
    return prefix_ + name + (GetParam() ? "" : "-shm");
  }
  std::size_t num_names() const {
    std::size_t num = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
      num += entry.path().filename().string().find(prefix_.substr(1)) != std::string::npos ? 1 : 0;
    }
    return num;
  }

  const std::string prefix_;
  std::unique_ptr<MessageArea> to_runtime_;
  std::unique_ptr<MessageArea> from_runtime_;
  std::atomic<bool> is_over_ = false;
  aicirt::AreaOptions options_;
  std::unique_ptr<aicirt::Inbox> inbox_;
  std::unique_ptr<aicirt::Outbox> outbox_;
};

std::string message(std::size_t size, unsigned seed) {
  std::minstd_rand random(seed + 1);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

TEST_P(AreasTest, CarryMessagesOfAllSizesBothWays) {
  const std::size_t max = to_runtime_->bytes_max();
  std::vector<std::size_t> sizes = {1, 2, 3, 4, 5, 4096, max - 1, max};
  for (std::size_t i = 0; i < 200; ++i) sizes.push_back(1 + i * 37 % max);
  std::thread echo([&] {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const Result<std::string> received = inbox_->receive();
      ASSERT_TRUE(received.ok());
      ASSERT_TRUE(outbox_->send(*received).ok());
    }
  });
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::string sent = message(sizes[i], static_cast<unsigned>(i));
    ASSERT_TRUE(to_runtime_->send(sent, much_later()));
    const Result<std::optional<std::string>> back = from_runtime_->receive(much_later());
    ASSERT_TRUE(back.ok() && back->has_value());
    EXPECT_EQ(**back, sent);
  }
  echo.join();
}

TEST_P(AreasTest, WaitNoLongerThanTheyAreTold) {
  const Result<std::optional<std::string>> nothing = from_runtime_->receive(soon());
  ASSERT_TRUE(nothing.ok());
  EXPECT_FALSE(nothing->has_value());
  EXPECT_TRUE(to_runtime_->send("first", much_later()));
  EXPECT_FALSE(to_runtime_->send("second", soon()));
  EXPECT_EQ(*inbox_->receive(), "first");
  EXPECT_TRUE(to_runtime_->send("third", much_later()));
  EXPECT_EQ(*inbox_->receive(), "third");
  is_over_ = true;
  EXPECT_EQ(*inbox_->receive(), "");
}

TEST_P(AreasTest, RefuseALengthBeyondTheMemory) {
  ASSERT_TRUE(outbox_->send("fits").ok());
  // The runtime has unlinked its names where futexes are used, so another area is looked into.
  const auto area = make("hostile", Direction::kAnswers);
  const int file = shm_open(shm_name("hostile").c_str(), O_RDWR, 0);
  ASSERT_GE(file, 0);
  void* const at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  options_.prefix = prefix_;
  const auto writer = aicirt::open_outbox(options_, "hostile");
  ASSERT_TRUE(writer.ok() && (*writer)->send("x").ok());
  const std::uint32_t length = kBytes - 3;
  std::memcpy(static_cast<char*>(at) + (GetParam() ? kBytes / 2 : 0), &length, sizeof(length));
  munmap(at, kBytes);
  const Result<std::optional<std::string>> received = area->receive(much_later());
  ASSERT_FALSE(received.ok());
  EXPECT_THAT(received.error().message, HasSubstr(std::to_string(length)));
}

TEST_P(AreasTest, RefuseAnAnswerWithoutRoom) {
  EXPECT_FALSE(outbox_->send(std::string(kBytes, 'x')).ok());
  EXPECT_TRUE(outbox_->send("x").ok());
  EXPECT_EQ(**from_runtime_->receive(much_later()), "x");
}

TEST_P(AreasTest, LeaveNoNames) {
  EXPECT_EQ(num_names(), GetParam() ? 0U : 6U);
  to_runtime_->unlink();
  from_runtime_->unlink();
  EXPECT_EQ(num_names(), 0U);
  EXPECT_TRUE(to_runtime_->send("still works", much_later()));
  EXPECT_EQ(*inbox_->receive(), "still works");
  {
    const auto area = make("other", Direction::kCommands);
    EXPECT_EQ(num_names(), GetParam() ? 1U : 3U);
  }
  EXPECT_EQ(num_names(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Modes, AreasTest, ::testing::Bool(),
                         [](const auto& futex) { return futex.param ? "Futexes" : "Semaphores"; });

TEST(SharedMemoryTest, MoreThanThereIsIsAnError) {
  const std::string name = "/lmtp-large-" + std::to_string(getpid());
  const auto made = SharedMemory::create(name, std::size_t{1} << 52);
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(made.error().message, HasSubstr(name));
  EXPECT_FALSE(std::filesystem::exists("/dev/shm" + name));
}

// Rows, as one side writes and the other reads them.
TEST(BiasRowsTest, AreReadAsTheyWereWritten) {
  constexpr std::size_t kVocab = 70;
  for (const bool is_c : {false, true}) {
    const std::size_t num = is_c ? 128 : kVocab;
    const std::size_t first = is_c ? 64 : 0;
    alignas(4) unsigned char memory[4096] = {};
    const float forbidden = is_c ? -INFINITY : -100.0F;
    const std::vector<std::uint32_t> mask = {0x80000001, 0x00FF00FF, 0x3F};
    aicirt::write_row(memory, first + num * 4, num, mask, kVocab, forbidden);
    aicirt::write_row(memory, first + 2 * num * 4, num, {}, kVocab, forbidden);
    aicirt::write_row(memory, first + 3 * num * 4, num, std::vector<std::uint32_t>(3), kVocab,
                      forbidden);
    const auto bytes = std::as_bytes(std::span(memory));
    const RowPlaces places{first, num * 4, kVocab};
    EXPECT_EQ(*read_row(bytes, places, 1, 100),
              (std::vector<std::uint32_t>{0x80000001, 0x00FF00FF, 0x3F, 0}));
    EXPECT_EQ(*read_row(bytes, places, 2, 70),
              (std::vector<std::uint32_t>{0xFFFFFFFF, 0xFFFFFFFF, 0x3F}));
    EXPECT_FALSE(allows_any(*read_row(bytes, places, 3, 70)));
    EXPECT_EQ(*read_row(bytes, places, 2, 33), (std::vector<std::uint32_t>{0xFFFFFFFF, 1}));
    EXPECT_FALSE(read_row(bytes, places, 100, 70).ok());
    EXPECT_FALSE(read_row(bytes, {4094, 4, 1}, 0, 70).ok());
    EXPECT_FALSE(read_row(bytes, {0, 4, 2}, 0, 70).ok());
  }
}

TEST(BiasRowsTest, NumbersThatAreNoneAreNotAllowed) {
  alignas(4) unsigned char memory[64];
  aicirt::fill_rows(memory, 0, NAN);
  EXPECT_FALSE(allows_any(*read_row(std::as_bytes(std::span(memory)), {0, 64, 16}, 0, 16)));
}

}  // namespace
}  // namespace lmtp::aici
