// How long a short prompt waits beside a connection with many streams, counted in steps.
#include <gtest/gtest.h>

#include <vector>

#include "lmtp/scheduler/scheduler.h"
#include "scheduler_driver.h"
#include "small_cases.h"

namespace lmtp::scheduler {
namespace {

using testing::counting;
using testing::SchedulerDriver;
using testing::small_agent;
using testing::small_options;

// The steps that prompts of another connection, one after the other, wait for their tokens beside
// a crowd: 200 streams of one connection that go on as long as the context does.
class BesideCrowd {
 public:
  BesideCrowd(int num_prompt, int num_blocks) : driver_(small_agent(num_blocks), options()) {
    for (StreamId id = 1; id <= 200; ++id) {
      driver_.generate(id, counting(static_cast<int>(id) * 3, num_prompt), kContext - num_prompt);
    }
  }

  void step(int num_steps) {
    for (int i = 0; i < num_steps; ++i) driver_.step(kLimits);
  }
  std::vector<int> steps_of(int num_others) {
    std::vector<int> steps;
    for (int i = 0; i < num_others; ++i) {
      const StreamId id = next_id_++;
      const auto other = driver_.generate(id, counting(static_cast<int>(id) * 3, 24), 4, 2);
      for (steps.push_back(0); driver_.outcome(other).tokens.empty(); ++steps.back()) step(1);
      while (!driver_.outcome(other).done) step(1);
      step(1 + i % 5);
    }
    return steps;
  }
  Scheduler& scheduler() { return driver_.scheduler(); }

 private:
  static constexpr int kContext = 1024;
  static constexpr StepLimits kLimits{.prefill = 36, .cached = 64};
  static SchedulerOptions options() {
    SchedulerOptions options = small_options();
    options.batch.max_tokens = 512;
    options.context_length = kContext;
    return options;
  }

  SchedulerDriver driver_;
  StreamId next_id_ = 300;
};

// While the crowd's prompts take all that a step has for prompts.
TEST(Crowd, AShortPromptIsComputedInTheNextStepBesideACrowdsPrompts) {
  constexpr int kManyBlocks = 14'000;
  for (const int num_prompt : {24, 600}) {
    BesideCrowd crowd(num_prompt, kManyBlocks);
    crowd.step(20);
    EXPECT_EQ(crowd.steps_of(12), std::vector<int>(12, 1)) << num_prompt;
    EXPECT_GT(crowd.scheduler().num_waiting(), 20);
    EXPECT_EQ(crowd.scheduler().counters().num_preemptions, 0);
  }
}

// What the crowd's streams do not get waits, too.
TEST(Crowd, AShortPromptIsComputedInTheNextStepBesideACrowdThatFillsTheCache) {
  BesideCrowd crowd(24, 1800);
  while (crowd.scheduler().counters().num_preemptions == 0) crowd.step(1);
  EXPECT_EQ(crowd.steps_of(60), std::vector<int>(60, 1));
  EXPECT_GT(crowd.scheduler().num_waiting(), 50);
}

// One in each step, whose prompt could take all that it has for prompts.
TEST(Crowd, NewConnectionsWithoutEndLeavePromptsOfOthersTheirTurn) {
  SchedulerOptions options = small_options();
  options.batch.max_tokens = 512;
  SchedulerDriver driver(small_agent(1000), options);
  const StepLimits limits{.prefill = 32, .cached = 32};
  for (StreamId id = 1; id <= 50; ++id) {
    driver.generate(id, counting(static_cast<int>(id), 3), 250, 1);
  }
  for (int i = 0; i < 10; ++i) driver.step(limits);
  const auto waiting = driver.generate(100, counting(300, 60), 1, 1);
  int steps = 0;
  for (; !driver.outcome(waiting).done && steps < 100; ++steps) {
    const ConnectionId connection = 1000 + static_cast<ConnectionId>(steps);
    driver.generate(1, counting(static_cast<int>(connection) % 900, 32), 1, connection);
    driver.step(limits);
  }
  EXPECT_LE(steps, 10);
}

}  // namespace
}  // namespace lmtp::scheduler
