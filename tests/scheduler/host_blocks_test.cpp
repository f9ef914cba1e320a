// What comes from blocks of the host, and which sequence gets it in which step.
#include <gtest/gtest.h>

#include <array>
#include <utility>
#include <vector>

#include "scheduler_driver.h"
#include "small_cases.h"

namespace lmtp::scheduler {
namespace {

using testing::FakeAgent;
using testing::SchedulerDriver;

// One stream of the whole context, and a bit.
constexpr int kPoolBlocks = 256 / kBlockSize + 4;
constexpr int kPromptBlocks = 3;

std::vector<TokenId> prompt_of(int number) {
  return testing::counting(number * 100, kPromptBlocks * kBlockSize + 1);
}

class HostBlocksTest : public ::testing::Test {
 protected:
  static testing::FakeAgentOptions agent_options() {
    testing::FakeAgentOptions options = testing::small_agent(kPoolBlocks);
    options.num_host_blocks = 200;
    return options;
  }

  void ask(int number, StreamId id) {
    const StreamKey key = driver_.generate(id, prompt_of(number), 2, static_cast<ConnectionId>(id));
    keys_.emplace_back(key, number);
  }
  // Computes these prompts, and others until the pool has nothing of them any more.
  void send_to_host(int count) {
    for (int number = 0; number < count; ++number) ask(number, number + 1);
    driver_.run();
    for (int number = count; number < count + kPoolBlocks; ++number) ask(number, number + 1);
    driver_.run();
    ASSERT_GE(counters().num_swapped_out, count * kPromptBlocks);
    ASSERT_EQ(counters().num_swapped_in, 0);
  }
  void expect_all_alone() {
    for (const auto& [key, number] : keys_) {
      EXPECT_EQ(driver_.outcome(key).tokens,
                FakeAgent::expected_tokens(prompt_of(number), 2, testing::kSmallVocab));
    }
  }
  const SchedulerCounters& counters() { return driver_.scheduler().counters(); }

  SchedulerDriver driver_{agent_options(), testing::small_options()};
  std::vector<std::pair<StreamKey, int>> keys_;
};

// A prompt whose layers with windows are in groups of their own, and those without in one, or none.
TEST(GroupsOnHostTest, APromptThatComesAgainComputesOneToken) {
  for (const bool has_stubs : {false, true}) {
    testing::FakeAgentOptions agent = testing::small_agent(60);
    agent.kv_layout = testing::windowed_layout(std::array{20, 48}, 64, has_stubs);
    agent.num_host_blocks = 200;
    SchedulerDriver driver(agent, testing::small_options());
    for (int i = 0; i < 12; ++i) driver.generate(1 + i, testing::counting(300 * i, 200), 4);
    driver.run();
    const SchedulerCounters& counters = driver.scheduler().counters();
    ASSERT_GT(counters.num_swapped_out, 20);
    const std::int64_t before = counters.num_tokens_computed;
    const std::int64_t swapped_in = counters.num_swapped_in;
    const auto prompt = testing::counting(0, 193);
    const StreamKey key = driver.generate(100, prompt, 1);
    driver.run();
    EXPECT_EQ(counters.num_tokens_computed - before, 1);
    // 12 of all; of 20 and 48 tokens what the token at 192 sees.
    EXPECT_EQ(counters.num_swapped_in - swapped_in, (has_stubs ? 0 : 12) + 2 + 3);
    EXPECT_EQ(driver.outcome(key).tokens,
              FakeAgent::expected_tokens(prompt, 1, testing::kSmallVocab));
  }
}

TEST_F(HostBlocksTest, APromptThatComesAgainComputesOneToken) {
  send_to_host(1);
  const std::int64_t before = counters().num_tokens_computed;
  ask(0, 100);
  driver_.step();
  EXPECT_EQ(counters().num_tokens_computed, before + 1);
  EXPECT_EQ(counters().num_swapped_in, kPromptBlocks);
  EXPECT_EQ(counters().num_host_hits, 1);
  driver_.run();
  expect_all_alone();
}

TEST_F(HostBlocksTest, NothingIsFetchedNorSentWhereComputingIsFaster) {
  send_to_host(1);
  const std::int64_t sent = counters().num_swapped_out;
  const std::int64_t before = counters().num_tokens_computed;
  for (int number : {0, 90, 91}) ask(number, 100 + number);
  while (driver_.step({.fetched = 0})) {
  }
  EXPECT_EQ(counters().num_swapped_in, 0);
  EXPECT_GE(counters().num_tokens_computed - before, 3 * kPromptBlocks * kBlockSize);
  // What has others below it there goes with them.
  EXPECT_LE(counters().num_swapped_out - sent, 3 * kPromptBlocks);
  expect_all_alone();
}

// Each has more than a step may fetch: one a step, and the other then.
TEST_F(HostBlocksTest, AStepFetchesOneLongPrefix) {
  send_to_host(2);
  ask(0, 100);
  ask(1, 101);
  ASSERT_TRUE(driver_.step({.fetched = kPromptBlocks - 1}));
  EXPECT_EQ(counters().num_swapped_in, kPromptBlocks);
  ASSERT_TRUE(driver_.step({.fetched = kPromptBlocks - 1}));
  EXPECT_EQ(counters().num_swapped_in, 2 * kPromptBlocks);
  driver_.run();
  expect_all_alone();
}

TEST_F(HostBlocksTest, AStepFetchesSeveralThatFit) {
  send_to_host(2);
  ask(0, 100);
  ask(1, 101);
  ASSERT_TRUE(driver_.step({.fetched = 2 * kPromptBlocks}));
  EXPECT_EQ(counters().num_swapped_in, 2 * kPromptBlocks);
  driver_.run();
  expect_all_alone();
}

}  // namespace
}  // namespace lmtp::scheduler
