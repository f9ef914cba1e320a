#include "net/patience.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace lmtp::server
