#include "queue_notices.h"

#include <gtest/gtest.h>

#include <vector>

namespace lmtp::engine {
namespace {

using std::chrono::milliseconds;

StreamKey key(StreamId stream) { return {1, stream}; }

class QueueNoticesTest : public ::testing::Test {
 protected:
  // A step every `interval` that lets one in, while others wait.
  void admit_steadily(int count, milliseconds interval) {
    for (int i = 0; i < count; ++i) queue.planned(1, 5, now += interval);
  }

  QueueNotices queue;
  QueueNotices::Clock::time_point now{};
};

TEST_F(QueueNoticesTest, ComeAfterHalfASecondAndThenOnceASecond) {
  queue.begin(key(1), now);
  queue.begin(key(2), now + milliseconds(300));
  const std::vector<StreamKey> order = {key(1), key(9), key(2)};
  std::vector<int> told;  // hundredths of a second at which stream 1 was told
  for (int at = 0; at < 300; ++at) {
    const auto then = now + milliseconds(at * 10);
    if (!queue.is_due(then)) continue;
    for (const auto& [to, notice] : queue.take(order, then)) {
      EXPECT_EQ(notice.position, to.stream == 1 ? 1 : 3);
      EXPECT_EQ(notice.kind, StreamNotice::Kind::kQueued);
      EXPECT_EQ(notice.stream_id, to.stream);
      if (to.stream == 1) told.push_back(at);
    }
  }
  EXPECT_EQ(told, (std::vector<int>{50, 150, 250}));
}

TEST_F(QueueNoticesTest, WhoWaitsNoMoreIsToldNothing) {
  queue.begin(key(1), now);
  queue.begin(key(2), now);
  queue.ended(key(1));
  EXPECT_EQ(queue.take(std::vector{key(2)}, now + milliseconds(600)).size(), 1U);
  queue.admitted(key(2), now + milliseconds(700));
  EXPECT_FALSE(queue.is_due(now + milliseconds(5000)));
}

TEST_F(QueueNoticesTest, TheEstimateIsTheMeanIntervalTimesThePosition) {
  queue.planned(4, 5, now);  // at once: says nothing
  admit_steadily(64, milliseconds(250));
  queue.begin(key(1), now);
  queue.begin(key(2), now);
  const auto notices = queue.take(std::vector{key(1), key(8), key(2)}, now + milliseconds(500));
  ASSERT_EQ(notices.size(), 2U);
  EXPECT_NEAR(static_cast<double>(notices[0].notice.wait_ms), 250.0, 20.0);
  EXPECT_NEAR(static_cast<double>(notices[1].notice.wait_ms), 750.0, 60.0);
}

// Where streams wait three times as long as admissions and places say, later ones are told so.
TEST_F(QueueNoticesTest, TheEstimateLearnsFromWaits) {
  admit_steadily(64, milliseconds(250));
  const std::vector<StreamKey> order = {key(1), key(2)};
  std::int64_t wait_ms = 0;
  for (int i = 0; i < 60; ++i) {
    queue.begin(key(2), now);
    admit_steadily(2, milliseconds(250));
    const auto notices = queue.take(order, now);
    ASSERT_EQ(notices.size(), 1U);
    wait_ms = notices[0].notice.wait_ms;
    admit_steadily(6, milliseconds(250));
    queue.admitted(key(2), now);
  }
  EXPECT_NEAR(static_cast<double>(wait_ms), 1500.0, 150.0);
}

TEST_F(QueueNoticesTest, TimesWithoutAQueueDoNotCount) {
  admit_steadily(64, milliseconds(100));
  queue.planned(1, 0, now += milliseconds(100));  // the queue is empty
  for (int i = 0; i < 50; ++i) queue.planned(1, 0, now += milliseconds(7000));
  queue.planned(0, 2, now += milliseconds(7000));
  queue.begin(key(1), now);
  const auto notices = queue.take(std::vector{key(1)}, now + milliseconds(500));
  ASSERT_EQ(notices.size(), 1U);
  EXPECT_NEAR(static_cast<double>(notices[0].notice.wait_ms), 100.0, 10.0);
}

TEST_F(QueueNoticesTest, TheFirstQueueIsEstimatedByWhatItHasWaited) {
  queue.planned(4, 3, now);
  queue.begin(key(1), now);
  for (int i = 0; i < 10; ++i) queue.planned(0, 3, now += milliseconds(80));
  const auto notices = queue.take(std::vector{key(7), key(1)}, now);
  ASSERT_EQ(notices.size(), 1U);
  EXPECT_EQ(notices[0].notice.wait_ms, 1600);
}

}  // namespace
}  // namespace lmtp::engine
