#include "lmtp/base/bounded_queue.h"

#include <gtest/gtest.h>

#include <thread>

namespace lmtp {
namespace {

TEST(BoundedQueue, RefusesBeyondItsLimitAndLeavesTheItem) {
  BoundedQueue<std::string> queue(1);
  EXPECT_TRUE(queue.try_push("a"));
  std::string second = "b";
  EXPECT_FALSE(queue.try_push(std::move(second)));
  EXPECT_EQ(second, "b");  // NOLINT(bugprone-use-after-move): a refused item stays as it was
  EXPECT_TRUE(queue.push_control("c"));
  EXPECT_EQ(queue.drain(), (std::vector<std::string>{"a", "c"}));
  EXPECT_TRUE(queue.try_push("d"));
}

TEST(BoundedQueue, ClosingWakesTheConsumerAndRefusesTheRest) {
  BoundedQueue<int> queue(4);
  std::thread closer([&] { queue.close(); });
  EXPECT_TRUE(queue.wait_drain().empty());
  closer.join();
  EXPECT_FALSE(queue.try_push(1));
  EXPECT_FALSE(queue.push_control(1));
}

TEST(BoundedQueue, LosesNothingAmongManyProducers) {
  constexpr int kProducers = 4;
  constexpr int kEach = 1000;
  BoundedQueue<int> queue(64);
  std::vector<std::thread> producers;
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&queue, p] {
      for (int i = 0; i < kEach; ++i) {
        while (!queue.try_push(p * kEach + i)) std::this_thread::yield();
      }
    });
  }
  std::vector<int> next(kProducers, 0);
  int taken = 0;
  while (taken < kProducers * kEach) {
    for (const int item : queue.wait_drain()) {
      EXPECT_EQ(item % kEach, next[static_cast<std::size_t>(item / kEach)]++);
      ++taken;
    }
  }
  for (std::thread& producer : producers) producer.join();
}

}  // namespace
}  // namespace lmtp
