#include "common/progress_bar.h"

#include <gtest/gtest.h>

namespace lmtp::tools {
namespace {

using Clock = TransferRate::Clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(TransferRate, IsThatOfTheLastSeconds) {
  TransferRate rate;
  const Clock::time_point start{};
  rate.add(start, 500);
  EXPECT_EQ(rate.bytes_per_second(), 0) << "one moment has no speed";
  rate.add(start + seconds(1), 1500);
  EXPECT_DOUBLE_EQ(rate.bytes_per_second(), 1000) << "what was there before does not count";
  for (int s = 2; s <= 20; ++s) rate.add(start + seconds(s), 1500 + 10 * (s - 1));
  EXPECT_DOUBLE_EQ(rate.bytes_per_second(), 10);
}

TEST(TransferRate, ManySamplesAreFew) {
  TransferRate rate;
  const Clock::time_point start{};
  for (int ms = 0; ms <= 10'000; ++ms) rate.add(start + milliseconds(ms), ms);
  EXPECT_NEAR(rate.bytes_per_second(), 1000, 1);
}

TEST(TransferRate, BeginsAnewWhereSomethingWasDropped) {
  TransferRate rate;
  const Clock::time_point start{};
  rate.add(start, 1000);
  rate.add(start + seconds(1), 2000);
  rate.add(start + seconds(2), 0);
  EXPECT_EQ(rate.bytes_per_second(), 0);
  rate.add(start + seconds(3), 100);
  EXPECT_DOUBLE_EQ(rate.bytes_per_second(), 100);
}

TEST(TransferText, HasAmountSpeedAndTimeLeft) {
  EXPECT_EQ(transfer_text(120'300'000, 548'100'000, 12'300'000),
            "120.3 of 548.1 MB, 12.3 MB/s, 0:35 left");
  EXPECT_EQ(transfer_text(0, 548'100'000, 0), "0.0 of 548.1 MB");
  EXPECT_EQ(transfer_text(4'000'000'000, 16'000'000'000, 2'000'000),
            "4.0 of 16.0 GB, 2.0 MB/s, 1:40:00 left");
  EXPECT_EQ(transfer_text(0, 16'000'000'000, 1), "0.0 of 16.0 GB, 0.0 MB/s");
}

}  // namespace
}  // namespace lmtp::tools
