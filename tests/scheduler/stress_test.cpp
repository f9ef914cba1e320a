// Random arrivals, prefixes, cancels and tight memory: whatever happens, every stream gets the tokens
// that it would get alone. The fake agent aborts where a block does not hold what it should.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "scheduler_driver.h"

namespace lmtp::scheduler {
namespace {

using testing::FakeAgent;
using testing::FakeAgentOptions;
using testing::SchedulerDriver;

constexpr int kVocab = 3;  // few tokens: prefixes collide all the time

struct Case {
  int num_blocks;
  int max_batched_tokens;
  int context_length;
  unsigned seed;
};

class StressTest : public ::testing::TestWithParam<Case> {};

TEST_P(StressTest, EveryStreamGetsWhatItWouldGetAlone) {
  const Case& c = GetParam();
  SchedulerOptions options;
  options.context_length = c.context_length;
  options.max_batched_tokens = c.max_batched_tokens;
  FakeAgentOptions agent;
  agent.vocab_size = kVocab;
  agent.num_blocks = c.num_blocks;
  agent.row_fails = [](const Sequence& sequence) {
    return sequence.key.stream % 17 == 0 && sequence.num_generated() == 2;
  };
  int num_steps = 0;
  agent.before_step = [&num_steps](const StepPlan&) -> Result<void> {
    if (++num_steps % 97 == 0) return Error{"a step that fails"};
    return {};
  };
  SchedulerDriver driver(agent, options);
  std::mt19937 random(c.seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };

  struct Asked {
    std::vector<TokenId> prompt;
    std::vector<TokenId> scored;
    int max_tokens = 0;
  };
  std::map<StreamId, Asked> asked;
  std::vector<std::vector<TokenId>> texts = {{0}};
  StreamId next_id = 1;
  for (int round = 0; round < 600; ++round) {
    for (int arrivals = below(3); arrivals > 0; --arrivals) {
      Asked a;
      a.prompt = texts[static_cast<std::size_t>(below(static_cast<int>(texts.size())))];
      a.prompt.resize(static_cast<std::size_t>(
          1 + below(std::min(static_cast<int>(a.prompt.size()), c.context_length / 2))));
      for (int more = below(20); more > 0; --more) a.prompt.push_back(below(kVocab));
      a.prompt.resize(std::min<std::size_t>(a.prompt.size(), c.context_length / 2));
      const StreamId id = next_id++;
      const auto connection = static_cast<ConnectionId>(1 + id % 3);
      if (below(3) == 0) {
        for (int more = 1 + below(20); more > 0; --more) a.scored.push_back(below(kVocab));
        driver.score(id, a.prompt, a.scored, connection);
      } else {
        a.max_tokens = 1 + below(40);
        driver.generate(id, a.prompt, a.max_tokens, connection);
      }
      asked[id] = std::move(a);
    }
    if (below(10) == 0 && next_id > 1) {
      const StreamId victim = 1 + below(static_cast<int>(next_id) - 1);
      const StreamKey key{static_cast<ConnectionId>(1 + victim % 3), victim};
      if (driver.scheduler().remove(key)) asked.erase(victim);
      driver.scheduler().check_invariants();
    }
    driver.step();
    if (driver.scheduler().num_waiting() > 40) driver.run();
    if (round % 7 == 0 && next_id > 1) {  // what was generated becomes a prompt, as LMQL does
      const auto it = asked.find(1 + below(static_cast<int>(next_id) - 1));
      if (it != asked.end()) {
        auto text = it->second.prompt;
        const auto& made =
            driver.outcome({static_cast<ConnectionId>(1 + it->first % 3), it->first}).tokens;
        text.insert(text.end(), made.begin(), made.end());
        texts.push_back(std::move(text));
      }
    }
  }
  driver.run();
  int num_failed = 0;
  for (const auto& [id, a] : asked) {
    const auto& got = driver.outcome({static_cast<ConnectionId>(1 + id % 3), id});
    ASSERT_TRUE(got.done) << id;
    if (!got.error.empty()) {
      ++num_failed;
      continue;
    }
    if (!a.scored.empty()) {
      EXPECT_EQ(got.tokens, a.scored) << id;
      continue;
    }
    const int limit = c.context_length - static_cast<int>(a.prompt.size());
    EXPECT_EQ(got.tokens,
              FakeAgent::expected_tokens(a.prompt, std::min(a.max_tokens, limit), kVocab))
        << id;
  }
  EXPECT_GT(num_failed, 0);
  EXPECT_LT(num_failed, static_cast<int>(asked.size()) / 2);
  EXPECT_EQ(driver.scheduler().pool().num_pinned(), 0);
  if (c.num_blocks < 20) {
    EXPECT_GT(driver.scheduler().counters().num_preemptions, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, StressTest,
                         ::testing::Values(Case{500, 64, 128, 1}, Case{12, 64, 128, 2},
                                           Case{10, 16, 128, 3}, Case{9, 8, 128, 4},
                                           Case{30, 512, 256, 5}, Case{18, 33, 256, 6},
                                           Case{60, 1, 64, 7}));

}  // namespace
}  // namespace lmtp::scheduler
