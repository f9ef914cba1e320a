#include "stream_times.h"

#include <gtest/gtest.h>

namespace lmtp::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(StreamTimes, OfManyStreamsOneEndsSoon) {
  StreamTimes times;
  for (int i = 0; i < 20; ++i) times.add(seconds(8));
  EXPECT_EQ(times.wait_ms(1), 8000);
  EXPECT_EQ(times.wait_ms(16), 500);
}

TEST(StreamTimes, FollowTheLastOnes) {
  StreamTimes times;
  times.add(milliseconds(1000));
  for (int i = 0; i < 16; ++i) times.add(milliseconds(2000));
  EXPECT_GT(times.wait_ms(1), 1500);
  EXPECT_LT(times.wait_ms(1), 2000);
}

TEST(StreamTimes, AreBounded) {
  StreamTimes times;
  times.add(milliseconds(1));
  EXPECT_EQ(times.wait_ms(1), StreamTimes::kWaitMsMin);
  for (int i = 0; i < 16; ++i) times.add(std::chrono::hours(1));
  EXPECT_EQ(times.wait_ms(1), StreamTimes::kWaitMsMax);
}

}  // namespace
}  // namespace lmtp::engine
