#include "step_pace.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>

namespace lmtp::engine {
namespace {

using namespace std::chrono_literals;

TEST(StepPaceTest, NothingIsKnownAtFirst) {
  const StepPace pace;
  EXPECT_EQ(pace.tokens_within(1ms), std::numeric_limits<int>::max());
  EXPECT_EQ(pace.time_for(1000), 0ms);
}

TEST(StepPaceTest, TellsWhatStepsOfManyTokensTook) {
  StepPace pace;
  pace.add(100, 400ms);
  EXPECT_NEAR(pace.tokens_within(100ms), 25, 1);
  EXPECT_NEAR(std::chrono::duration<double>(pace.time_for(50)).count(), 0.2, 1e-3);
}

TEST(StepPaceTest, FewTokensSayNothing) {
  StepPace pace;
  pace.add(1, 50ms);
  EXPECT_EQ(pace.time_for(1), 0ms);
}

TEST(StepPaceTest, FollowsAChange) {
  StepPace pace;
  pace.add(100, 400ms);
  for (int i = 0; i < 30; ++i) pace.add(100, 100ms);
  EXPECT_NEAR(pace.tokens_within(100ms), 100, 2);
}

TEST(StepPaceTest, AsManyAsAnIntHolds) {
  StepPace pace;
  pace.add(1000, 1us);
  EXPECT_EQ(pace.tokens_within(24h), std::numeric_limits<int>::max());
}

}  // namespace
}  // namespace lmtp::engine
