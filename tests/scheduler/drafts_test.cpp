// Speculation: which drafts there are, how few of them are refused, and that they change nothing
// but the number of steps. The fake agent aborts where a block does not hold what it should.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "repeats.h"
#include "scheduler_driver.h"
#include "small_cases.h"

namespace lmtp::scheduler {
namespace {

using testing::counting;
using testing::FakeAgent;
using testing::SchedulerDriver;

using Tokens = std::vector<TokenId>;

Tokens repeat_of(const Tokens& text, std::size_t least = 3) {
  const std::span<const TokenId> found = find_repeat(text, least);
  return {found.begin(), found.end()};
}

TEST(RepeatsTest, TheLongestOneCountsAndThenTheLatest) {
  EXPECT_EQ(repeat_of({1, 2, 3, 4, 5, 1, 2, 3}), (Tokens{4, 5, 1, 2, 3}));
  EXPECT_EQ(repeat_of({9, 1, 2, 3, 4, 1, 2, 3, 5, 9, 1, 2, 3}).front(), 4) << "the longest";
  EXPECT_EQ(repeat_of({1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3}).front(), 5) << "the latest";
  EXPECT_EQ(repeat_of({7, 7, 7, 7}), (Tokens{7})) << "it may reach into itself";
}

TEST(RepeatsTest, AShorterOneThanAskedForIsNone) {
  EXPECT_EQ(repeat_of({2, 3, 4, 1, 2, 3}), Tokens{});
  EXPECT_EQ(repeat_of({2, 3, 4, 1, 2, 3}, 2).front(), 4);
  EXPECT_EQ(repeat_of({5}, 1), Tokens{});
  EXPECT_EQ(repeat_of({5, 5}, 1), (Tokens{5}));
}

TEST(RepeatsTest, SoManyTokensAreSearchedAndCompared) {
  Tokens text = {1, 2, 3, 4};
  text.resize(kLookBackMax - 3, 0);  // the first token is just searched
  for (const TokenId token : {1, 2, 3}) text.push_back(token);
  EXPECT_EQ(repeat_of(text).front(), 4);
  text.insert(text.begin() + 5, 0);
  EXPECT_EQ(repeat_of(text), Tokens{});
  // Of repeats of so many tokens and more the latest.
  Tokens part = counting(1, static_cast<int>(kRepeatMax) + 4);
  Tokens parts = part;
  parts.push_back(100);
  parts.insert(parts.end(), part.begin() + 4, part.end());
  parts.push_back(200);
  parts.insert(parts.end(), part.begin(), part.end());
  EXPECT_EQ(repeat_of(parts).front(), 200);
}

class DraftsTest : public ::testing::Test {
 protected:
  static std::unique_ptr<SchedulerDriver> make_driver(int vocab_size, int max_drafts = 8,
                                                      int num_blocks = 200, TokenId eos_id = -1) {
    testing::FakeAgentOptions agent = testing::small_agent(num_blocks);
    agent.vocab_size = vocab_size;
    SchedulerOptions options = testing::small_options();
    options.vocab_size = vocab_size;
    options.max_drafts = max_drafts;
    if (eos_id >= 0) options.eos_ids = {eos_id};
    return std::make_unique<SchedulerDriver>(agent, options);
  }

  static void expect_tokens(SchedulerDriver& driver, StreamKey key, const Tokens& prompt, int count,
                            int vocab_size) {
    const SchedulerDriver::Outcome& outcome = driver.outcome(key);
    EXPECT_EQ(outcome.tokens, FakeAgent::expected_tokens(prompt, count, vocab_size));
    Tokens prefix = prompt;
    for (std::size_t i = 0; i < outcome.tokens.size(); ++i) {
      ASSERT_EQ(outcome.logprobs[i], FakeAgent::logprob_after(prefix, outcome.tokens[i])) << i;
      prefix.push_back(outcome.tokens[i]);
    }
    EXPECT_EQ(outcome.finish, FinishReason::kLength);
  }

  static int run(SchedulerDriver& driver) {
    int num_steps = 0;
    while (driver.step()) ++num_steps;
    return num_steps;
  }
};

// With one token there is nothing but repeats.
TEST_F(DraftsTest, TextThatRepeatsTakesFewSteps) {
  const auto driver = make_driver(1);
  const StreamKey key = driver->generate(1, {0, 0, 0}, 200);
  // 40 tokens are computed before the first draft is paid for; then there are 1, 2, 4 and 8.
  EXPECT_LE(run(*driver), 40 + 3 + 160 / 9 + 2);
  expect_tokens(*driver, key, {0, 0, 0}, 200, 1);
  const SchedulerCounters& counters = driver->scheduler().counters();
  EXPECT_EQ(counters.num_refused_drafts, 0);
  EXPECT_GT(counters.num_accepted_drafts, 130);
  EXPECT_EQ(counters.num_tokens_computed, 202) << "all but the last one";
  EXPECT_EQ(counters.num_generated_tokens, 200);
}

TEST_F(DraftsTest, TextThatAnotherStreamHadTakesFewSteps) {
  const auto driver = make_driver(testing::kSmallVocab);
  const Tokens prompt = counting(1, 50);
  driver->generate(1, prompt, 150);
  EXPECT_EQ(run(*driver), 150) << "nothing repeats there";
  const StreamKey again = driver->generate(2, prompt, 150);
  // A draft ends with its block.
  EXPECT_LE(run(*driver), 4 + 3 * 10);
  expect_tokens(*driver, again, prompt, 150, testing::kSmallVocab);
  EXPECT_EQ(driver->scheduler().counters().num_refused_drafts, 0);
  // Not that of another adapter.
  const std::int64_t accepted = driver->scheduler().counters().num_accepted_drafts;
  EXPECT_GT(accepted, 100);
  driver->generate(3, prompt, 150, 1, {}, testing::fake_adapter("other", 1));
  run(*driver);
  EXPECT_EQ(driver->scheduler().counters().num_accepted_drafts, accepted);
}

// Another one for each number.
Tokens digits_of(StreamId number, int base) {
  Tokens digits;
  for (int i = 0; i < 3; ++i, number /= base) digits.push_back(static_cast<TokenId>(number % base));
  return digits;
}

// With few tokens the last three were there before, and say nothing of the next one.
TEST_F(DraftsTest, OfTextThatOnlySeemsToRepeatFewRowsAreRefused) {
  constexpr StreamId kStreams = 8;
  for (const int vocab_size : {3, 4, 6}) {
    SCOPED_TRACE(vocab_size);
    const auto driver = make_driver(vocab_size);
    const auto count = [](StreamId id) { return 220 - 4 * static_cast<int>(id); };
    for (StreamId id = 1; id <= kStreams; ++id) {
      driver->generate(id, digits_of(id, vocab_size), count(id));
    }
    run(*driver);
    for (StreamId id = 1; id <= kStreams; ++id) {
      expect_tokens(*driver, {1, id}, digits_of(id, vocab_size), count(id), vocab_size);
    }
    const SchedulerCounters& counters = driver->scheduler().counters();
    EXPECT_GT(counters.num_refused_drafts, 5);
    EXPECT_LE(20 * counters.num_refused_drafts, counters.num_tokens_computed);
    EXPECT_LE(40 * counters.num_refused_drafts,
              counters.num_tokens_computed + 10 * counters.num_accepted_drafts);
  }
}

TEST_F(DraftsTest, AStreamThatIsRefusedPausesLongerEachTime) {
  constexpr int kFew = 5;
  const auto driver = make_driver(kFew);
  for (StreamId id = 10; id < 20; ++id) {  // these pay
    driver->score(id, digits_of(id, kFew), Tokens(200, 0));
  }
  run(*driver);
  const StreamKey key = driver->generate(1, {0, 1}, 250);
  int pause = 32;
  int from = 0;
  int num_refused = 0;
  std::size_t before = 0;
  for (int step = 0; driver->step(); ++step) {
    const std::size_t num_drawn = driver->outcome(key).tokens.size() -
                                  std::exchange(before, driver->outcome(key).tokens.size());
    if (driver->last_plan().drafts.empty()) continue;
    EXPECT_GE(step, from);
    if (num_drawn > 1) {
      pause = 4;
      continue;
    }
    ++num_refused;
    from = step + pause;
    pause *= 2;
  }
  EXPECT_GT(num_refused, 2);
}

// A stop among tokens that are computed together: what is behind it is as if it had never been.
TEST_F(DraftsTest, AStreamEndsAmongItsDraftsAsWithoutThem) {
  class Nth : public StopChecker {
   public:
    explicit Nth(int number) : left_(number) {}
    bool push(TokenId /*token*/, bool may_stop) override { return --left_ <= 0 && may_stop; }
    std::unique_ptr<StopChecker> restarted(std::span<const TokenId> /*before*/,
                                           std::span<const TokenId> generated) const override {
      return std::make_unique<Nth>(left_ - static_cast<int>(generated.size()));
    }

   private:
    int left_;
  };
  const auto driver = make_driver(1);
  for (int number = 90; number < 110; ++number) {
    auto sequence = std::make_unique<Sequence>();
    sequence->key = {1, number};
    sequence->tokens = {0, 0, 0};
    sequence->num_prompt = 3;
    sequence->params.max_tokens = 200;
    sequence->stops = std::make_shared<Nth>(number);
    const StreamKey key = driver->add(std::move(sequence));
    run(*driver);
    EXPECT_EQ(driver->outcome(key).tokens.size(), static_cast<std::size_t>(number));
    EXPECT_EQ(driver->outcome(key).finish, FinishReason::kStop);
  }
  const SchedulerCounters& counters = driver->scheduler().counters();
  EXPECT_GT(counters.num_refused_drafts, 0) << "those behind the end";
  EXPECT_EQ(driver->scheduler().pool().num_pinned(), 0);
}

TEST_F(DraftsTest, NeitherMaxTokensNorTheContextIsPassed) {
  const auto driver = make_driver(1, 16);
  for (int max_tokens = 100; max_tokens < 120; ++max_tokens) {
    const StreamKey key = driver->generate(max_tokens, {0, 0, 0}, max_tokens);
    run(*driver);
    expect_tokens(*driver, key, {0, 0, 0}, max_tokens, 1);
  }
  const StreamKey key = driver->generate(1, {0, 0, 0}, 1000);
  run(*driver);
  expect_tokens(*driver, key, {0, 0, 0}, 253, 1);
  EXPECT_EQ(driver->scheduler().counters().num_refused_drafts, 0);
}

TEST_F(DraftsTest, NoStepHasMoreTokensForThem) {
  const auto driver = make_driver(1, 16);
  for (int id = 1; id <= 40; ++id) driver->generate(id, {0, 0, 0}, 150 + 2 * id);
  int num_with_drafts = 0;
  while (driver->step()) {
    const StepPlan& plan = driver->last_plan();
    num_with_drafts += plan.drafts.empty() ? 0 : 1;
    ASSERT_LE(plan.num_tokens, plan.drafts.empty() ? 64 : 32);
    int num_drafts = 0;
    for (const PlanRow& row : plan.rows) {
      num_drafts += row.num_drafts;
      ASSERT_LE(row.num_drafts, 16);
    }
    ASSERT_EQ(num_drafts, static_cast<int>(plan.drafts.size()));
  }
  EXPECT_GT(num_with_drafts, 0);
}

// No stream gives up its blocks for another one's drafts.
TEST_F(DraftsTest, NoneIsPreemptedForThem) {
  const auto driver = make_driver(1, 16, Scheduler::min_blocks(256));
  driver->generate(1, {0, 0, 0}, 125);
  driver->generate(2, {0, 0, 0}, 125);
  run(*driver);
  EXPECT_EQ(driver->scheduler().counters().num_preemptions, 0);
  EXPECT_GT(driver->scheduler().counters().num_accepted_drafts, 100);
}

// As the reply of a chat with tools is, up to a call.
TEST_F(DraftsTest, AStreamWithMasksHasThemWhereTheseAllowAnything) {
  static constexpr std::size_t kFree = 100;  // tokens
  class FreeAtFirst : public MaskSource {
   public:
    Result<void> compute(std::span<const TokenId> /*before*/,
                         std::span<const TokenId> /*generated*/,
                         NextTokens& /*next*/) const override {
      return {};
    }
    std::size_t num_free(std::span<const TokenId> generated,
                         std::span<const TokenId> drafts) const override {
      const std::size_t last = std::min(generated.size() + drafts.size(), kFree - 1);
      return last - std::min(last, generated.size());
    }
    std::shared_ptr<const MaskSource> forked() const override { return nullptr; }
  };
  const auto driver = make_driver(1);
  auto sequence = std::make_unique<Sequence>();
  sequence->key = {1, 1};
  sequence->tokens = {0, 0, 0, 0, 0};
  sequence->num_prompt = 5;
  sequence->num_resumed = 2;  // these count as generated
  sequence->params.max_tokens = 200;
  sequence->mask_source = std::make_shared<FreeAtFirst>();
  driver->add(std::move(sequence));
  while (driver->step()) {
    for (const PlanRow& row : driver->last_plan().rows) {
      const int last = row.first_position + row.num_tokens;  // the position of what is drawn
      EXPECT_TRUE(row.num_drafts == 0 || last < 3 + static_cast<int>(kFree)) << last;
    }
  }
  EXPECT_EQ(driver->outcome({1, 1}).tokens.size(), 200U);
  EXPECT_GT(driver->scheduler().counters().num_accepted_drafts, 30);
  EXPECT_EQ(driver->scheduler().counters().num_refused_drafts, 0);
}

TEST_F(DraftsTest, StreamsWhoseTokensOthersDecideHaveNone) {
  class AnyToken : public MaskSource {
   public:
    Result<void> compute(std::span<const TokenId> /*before*/,
                         std::span<const TokenId> /*generated*/,
                         NextTokens& /*next*/) const override {
      return {};
    }
    std::shared_ptr<const MaskSource> forked() const override { return nullptr; }
  };
  const auto driver = make_driver(1, 8, 200, 5);
  SamplingParams late;
  late.min_tokens = 100;
  driver->generate(1, {0, 0, 0}, 100, 1, late);
  for (const StreamId id : {2, 3}) {
    auto sequence = std::make_unique<Sequence>();
    sequence->key = {1, id};
    sequence->tokens = {0, 0, 0};
    sequence->num_prompt = 3;
    sequence->params.max_tokens = 100;
    sequence->is_controlled = id == 2;
    if (id == 3) sequence->mask_source = std::make_shared<AnyToken>();
    driver->add(std::move(sequence));
  }
  while (driver->step()) {
    EXPECT_TRUE(driver->last_plan().drafts.empty());
    if (driver->scheduler().sequence({1, 2}) != nullptr) driver->scheduler().release({1, 2});
  }
  for (const StreamId id : {1, 2, 3}) EXPECT_EQ(driver->outcome({1, id}).tokens.size(), 100U);
  driver->generate(4, {0, 0, 0}, 100);  // as any other one
  run(*driver);
  EXPECT_GT(driver->scheduler().counters().num_accepted_drafts, 50);
}

}  // namespace
}  // namespace lmtp::scheduler
