// Random arrivals, prefixes, cancels, failures and tight memory: whatever happens, every stream
// gets the tokens that it would get alone. The fake agent aborts where a block does not hold what
// it should.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "scheduler_driver.h"

namespace lmtp::scheduler {
namespace {

using testing::FakeAgent;
using testing::FakeAgentOptions;
using testing::SchedulerDriver;

constexpr int kVocab = 3;  // few tokens: prefixes collide all the time
constexpr int kRounds = 600;

struct Case {
  int num_blocks;
  int max_batched_tokens;
  int context_length;
  unsigned seed;
  bool runs_ahead = false;
};

FakeAgentOptions agent_options(const Case& c) {
  FakeAgentOptions agent;
  agent.vocab_size = kVocab;
  agent.num_blocks = c.num_blocks;
  agent.runs_ahead = c.runs_ahead;
  agent.row_fails = [](const Sequence& sequence) {
    return sequence.key.stream % 17 == 0 && sequence.num_generated() == 2;
  };
  auto num_steps = std::make_shared<int>(0);
  agent.before_step = [num_steps](const StepPlan&) -> Result<void> {
    if (++*num_steps % 97 == 0) return Error{ErrorCode::kInternal, "a step that fails"};
    return {};
  };
  return agent;
}

SchedulerOptions scheduler_options(const Case& c) {
  SchedulerOptions options;
  options.context_length = c.context_length;
  options.batch.max_tokens = c.max_batched_tokens;
  return options;
}

class StressTest : public ::testing::TestWithParam<Case> {
 protected:
  struct Asked {
    std::vector<TokenId> prompt;
    std::vector<TokenId> scored;
    int max_tokens = 0;
  };

  int below(int limit) { return static_cast<int>(random_() % static_cast<unsigned>(limit)); }
  static StreamKey key_of(StreamId id) { return {static_cast<ConnectionId>(1 + id % 3), id}; }

  void arrive() {
    const auto half = static_cast<std::size_t>(GetParam().context_length / 2);
    Asked a;
    a.prompt = texts_[static_cast<std::size_t>(below(static_cast<int>(texts_.size())))];
    const int longest = static_cast<int>(std::min(a.prompt.size(), half));
    const int kept = 1 + below(longest);
    a.prompt.resize(static_cast<std::size_t>(kept));
    for (int more = below(20); more > 0; --more) a.prompt.push_back(below(kVocab));
    a.prompt.resize(std::min(a.prompt.size(), half));
    const StreamKey key = key_of(next_id_++);
    if (below(3) == 0) {
      for (int more = 1 + below(20); more > 0; --more) a.scored.push_back(below(kVocab));
      driver_.score(key.stream, a.prompt, a.scored, key.connection);
    } else {
      a.max_tokens = 1 + below(40);
      driver_.generate(key.stream, a.prompt, a.max_tokens, key.connection);
    }
    asked_[key.stream] = std::move(a);
  }

  void cancel_one() {
    const StreamId victim = 1 + below(static_cast<int>(next_id_) - 1);
    if (driver_.scheduler().remove(key_of(victim))) asked_.erase(victim);
    driver_.scheduler().check_invariants();
  }

  // What was generated becomes a prompt, as LMQL does.
  void keep_a_text() {
    const auto it = asked_.find(1 + below(static_cast<int>(next_id_) - 1));
    if (it == asked_.end()) return;
    auto text = it->second.prompt;
    const auto& made = driver_.outcome(key_of(it->first)).tokens;
    text.insert(text.end(), made.begin(), made.end());
    texts_.push_back(std::move(text));
  }

  // True where the stream ended by an error, which the agent's failures cause.
  bool check(StreamId id, const Asked& a) {
    const auto& got = driver_.outcome(key_of(id));
    EXPECT_TRUE(got.done) << id;
    if (!got.error.empty()) return true;
    if (!a.scored.empty()) {
      EXPECT_EQ(got.tokens, a.scored) << id;
      return false;
    }
    const int limit = GetParam().context_length - static_cast<int>(a.prompt.size());
    EXPECT_EQ(got.tokens,
              FakeAgent::expected_tokens(a.prompt, std::min(a.max_tokens, limit), kVocab))
        << id;
    return false;
  }

  std::mt19937 random_{GetParam().seed};
  SchedulerDriver driver_{agent_options(GetParam()), scheduler_options(GetParam())};
  std::map<StreamId, Asked> asked_;
  std::vector<std::vector<TokenId>> texts_ = {{0}};
  StreamId next_id_ = 1;
};

TEST_P(StressTest, EveryStreamGetsWhatItWouldGetAlone) {
  for (int round = 0; round < kRounds; ++round) {
    driver_.settle();
    for (int arrivals = below(3); arrivals > 0; --arrivals) arrive();
    if (below(10) == 0 && next_id_ > 1) cancel_one();
    for (int steps = GetParam().runs_ahead ? below(8) : 1; steps > 0; --steps) driver_.step();
    if (driver_.scheduler().num_waiting() > 40) driver_.run();
    if (round % 7 == 0 && next_id_ > 1) keep_a_text();
  }
  driver_.run();
  int num_failed = 0;
  for (const auto& [id, a] : asked_) num_failed += check(id, a) ? 1 : 0;
  EXPECT_GT(num_failed, 0);
  EXPECT_LT(num_failed, static_cast<int>(asked_.size()) / 2);
  EXPECT_EQ(driver_.scheduler().pool().num_pinned(), 0);
  if (GetParam().num_blocks < 20) {
    EXPECT_GT(driver_.scheduler().counters().num_preemptions, 0);
  }
  if (GetParam().runs_ahead) {
    EXPECT_GT(driver_.num_steps_ahead(), 100);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, StressTest,
                         ::testing::Values(Case{500, 64, 128, 1}, Case{12, 64, 128, 2},
                                           Case{10, 16, 128, 3}, Case{9, 8, 128, 4},
                                           Case{30, 512, 256, 5}, Case{18, 33, 256, 6},
                                           Case{60, 1, 64, 7}));
INSTANTIATE_TEST_SUITE_P(Ahead, StressTest,
                         ::testing::Values(Case{500, 64, 128, 11, true},
                                           Case{12, 64, 128, 12, true},
                                           Case{18, 33, 256, 13, true}));

}  // namespace
}  // namespace lmtp::scheduler
