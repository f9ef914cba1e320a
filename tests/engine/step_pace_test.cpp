#include "step_pace.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>

namespace lmtp::engine {
namespace {

using namespace std::chrono_literals;

TEST(StepPaceTest, NothingIsKnownAtFirst) {
  const StepPace pace;
  EXPECT_EQ(pace.tokens_within(1h), 64) << "the first step is a try";
  EXPECT_EQ(pace.time_for(1000), 0ms);
}

TEST(StepPaceTest, TellsWhatStepsOfManyTokensTook) {
  StepPace pace;
  pace.add(100, 1, 400ms);
  EXPECT_NEAR(pace.tokens_within(100ms), 25, 1);
  EXPECT_NEAR(std::chrono::duration<double>(pace.time_for(50)).count(), 0.2, 1e-3);
}

TEST(StepPaceTest, FewTokensSayNothing) {
  StepPace pace;
  pace.add(2, 1, 50ms);
  EXPECT_EQ(pace.time_for(1), 0ms);
}

TEST(StepPaceTest, DecodesSayHowLongDecodesTake) {
  StepPace pace;
  EXPECT_EQ(pace.decode_time(), 0ms);
  pace.add(40, 40, 50ms);
  EXPECT_NEAR(std::chrono::duration<double>(pace.decode_time()).count(), 0.05, 1e-6);
  EXPECT_EQ(pace.time_for(1000), 0ms);
  pace.add(100, 40, 400ms);
  EXPECT_NEAR(pace.tokens_within(pace.decode_time()), 12, 1);
}

// One stream was measured alone, and then prompts came in each step.
TEST(StepPaceTest, MoreDecodesThanWereMeasuredTakeLonger) {
  const scheduler::DebugOptions options;  // 100 ms
  StepPace pace;
  pace.add(1, 1, 16ms);
  pace.add(36, 20, 90ms);
  EXPECT_NEAR(std::chrono::duration<double>(pace.decode_time()).count(), 0.05, 1e-6);
  EXPECT_NEAR(pace.limits(options).prefill, 20 * 11 / 8, 1) << "beside many less";
  EXPECT_NEAR(pace.limits(options).cached, 20, 1);
  pace.add(120, 100, 300ms);
  EXPECT_NEAR(pace.limits(options).prefill, 40, 1) << "100 ms";
  EXPECT_NEAR(pace.limits(options).cached, 100, 1);
  pace.add(20, 4, 50ms);
  EXPECT_NEAR(std::chrono::duration<double>(pace.decode_time()).count(), 0.016, 1e-6);
}

TEST(StepPaceTest, DraftsMakeNoPromptOfADecode) {
  StepPace pace;
  pace.add(32, 8, 50ms, 0, 24);
  EXPECT_NEAR(std::chrono::duration<double>(pace.decode_time()).count(), 0.05, 1e-6);
  EXPECT_EQ(pace.time_for(1000), 0ms);
  pace.add(100, 8, 400ms, 0, 2);
  EXPECT_NEAR(pace.tokens_within(100ms), 25, 1) << "beside a prompt";
}

TEST(StepPaceTest, FollowsAChange) {
  StepPace pace;
  pace.add(100, 1, 400ms);
  for (int i = 0; i < 30; ++i) pace.add(100, 1, 100ms);
  EXPECT_NEAR(pace.tokens_within(100ms), 100, 2);
}

TEST(StepPaceTest, BesideDecodesAStepTakesThreeTimesAsLongAtMost) {
  const scheduler::DebugOptions options;  // 100 ms
  StepPace pace;
  pace.add(100, 1, 100ms);
  EXPECT_NEAR(pace.limits(options).prefill, 100, 1) << "how long decodes take is not known";
  pace.add(8, 8, 10ms);
  EXPECT_NEAR(pace.limits(options).prefill, 17, 1);
  EXPECT_NEAR(pace.limits(options).cached, 10, 1);
  for (int i = 0; i < 50; ++i) pace.add(8, 8, 90ms);
  EXPECT_NEAR(pace.limits(options).prefill, 100, 1);
}

TEST(StepPaceTest, BesideManyDecodesPromptsTakeLess) {
  const scheduler::DebugOptions options;  // 100 ms
  StepPace pace;
  pace.add(100, 1, 100ms);
  pace.add(15, 15, 40ms);
  EXPECT_NEAR(pace.limits(options).prefill, 70, 1);
  pace.add(16, 16, 40ms);
  EXPECT_NEAR(pace.limits(options).prefill, 55, 1);
}

TEST(StepPaceTest, BlocksComeFromTheHostWhereThatIsFasterThanComputingThem) {
  scheduler::DebugOptions options;
  options.max_prefill_ms = 100;
  StepPace pace;
  constexpr int kAny = scheduler::StepLimits::kAny;
  EXPECT_EQ(pace.limits(options).fetched, kAny) << "there are none";
  pace.set_fetch_time(2ms);
  EXPECT_EQ(pace.limits(options).fetched, 50) << "not known how long computing takes";
  pace.add(100, 1, 100ms);  // 16 ms a block
  EXPECT_EQ(pace.limits(options).fetched, 50);
  pace.set_fetch_time(17ms);
  EXPECT_EQ(pace.limits(options).fetched, 0);
  pace.set_fetch_time(6ms, 3);
  EXPECT_EQ(pace.limits(options).fetched, 0) << "18 ms in all groups";
  pace.set_fetch_time(15ms);
  options.max_prefill_ms = 1;
  EXPECT_EQ(pace.limits(options).fetched, 1);
  options.max_prefill_ms = 0;
  EXPECT_EQ(pace.limits(options).fetched, kAny);
}

TEST(StepPaceTest, TheTimeOfMovesIsNotThatOfTokens) {
  StepPace pace;
  pace.set_fetch_time(2ms);
  pace.add(100, 1, 300ms, 100);
  EXPECT_NEAR(pace.tokens_within(10ms), 10, 1);
  pace.add(10, 10, 25ms, 10);
  EXPECT_NEAR(std::chrono::duration<double>(pace.decode_time()).count(), 0.005, 1e-6);
}

TEST(StepPaceTest, AsManyAsAnIntHolds) {
  StepPace pace;
  pace.add(1000, 1, 1us);
  EXPECT_EQ(pace.tokens_within(24h), std::numeric_limits<int>::max());
}

}  // namespace
}  // namespace lmtp::engine
