#include "net/patience.h"

#include <gtest/gtest.h>

#include "net/silence.h"

namespace lmtp::server {
namespace {

using std::chrono::seconds;

TEST(Patience, LastsWhileThereIsProgress) {
  const Patience<int>::Clock::time_point begin{seconds(100)};
  Patience<int> patience(seconds(10), 7, begin);
  EXPECT_FALSE(patience.is_over(7, begin + seconds(9)));
  EXPECT_FALSE(patience.is_over(6, begin + seconds(15))) << "anew";
  EXPECT_FALSE(patience.is_over(5, begin + seconds(24))) << "though slowly";
  EXPECT_FALSE(patience.is_over(5, begin + seconds(33)));
  EXPECT_TRUE(patience.is_over(5, begin + seconds(34)));
}

TEST(Silence, IsEndedByWhatComes) {
  using Next = Silence::Next;
  Silence silence(seconds(10));
  const Silence::Clock::time_point begin = silence.due() - seconds(5);
  EXPECT_EQ(silence.next(begin, begin + seconds(4)), Next::kWait);
  EXPECT_EQ(silence.next(begin, begin + seconds(5)), Next::kAsk);
  EXPECT_EQ(silence.due(), begin + seconds(10));
  EXPECT_EQ(silence.next(begin, begin + seconds(9)), Next::kWait) << "asked once";
  const Silence::Clock::time_point answer = begin + seconds(9);
  EXPECT_EQ(silence.next(answer, begin + seconds(10)), Next::kWait) << "anew";
  EXPECT_EQ(silence.due(), answer + seconds(5));
  EXPECT_EQ(silence.next(answer, answer + seconds(6)), Next::kAsk);
  EXPECT_EQ(silence.next(answer, answer + seconds(9)), Next::kWait);
  EXPECT_EQ(silence.next(answer, answer + seconds(10)), Next::kGone);
}

}  // namespace
}  // namespace lmtp::server
