// Edits of live sequences: what comes out is what a new request for the same tokens would give, and
// nothing is computed again but what the prefix cache does not hold.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "scheduler_driver.h"
#include "small_cases.h"

namespace lmtp::scheduler {
namespace {

using testing::counting;
using testing::FakeAgent;
using testing::SchedulerDriver;
using testing::small_agent;
using testing::small_options;

std::vector<TokenId> operator+(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
  return testing::joined(a, b);
}

// With an agent that runs ahead, and with one that does not.
void set(SamplingChanges& changes, const char* name) {
  const auto at = std::ranges::find(kSamplingTable, name, &SamplingParam::name);
  changes.given.set(static_cast<std::size_t>(at - kSamplingTable.begin()));
}

class EditsTest : public ::testing::TestWithParam<bool> {
 protected:
  static testing::FakeAgentOptions agent(int num_blocks) {
    testing::FakeAgentOptions options = small_agent(num_blocks);
    options.runs_ahead = GetParam();
    return options;
  }
  static SchedulerOptions options() {
    SchedulerOptions made = small_options();
    made.context_length = 1024;
    made.batch.max_tokens = 512;
    return made;
  }

  void step(int count) {
    for (int i = 0; i < count; ++i) driver_.step();
    driver_.settle();
  }
  // Steps until the stream has got so many tokens.
  void run_until(StreamKey key, std::size_t num_tokens) {
    while (driver_.outcome(key).tokens.size() < num_tokens && driver_.step()) {
    }
    driver_.settle();
  }
  std::int64_t num_computed() { return driver_.scheduler().counters().num_tokens_computed; }
  Scheduler& scheduler() { return driver_.scheduler(); }
  const std::vector<TokenId>& tokens_of(StreamKey key) { return driver_.outcome(key).tokens; }

  SchedulerDriver driver_{agent(300), options()};
};

INSTANTIATE_TEST_SUITE_P(Agents, EditsTest, ::testing::Bool(),
                         [](const auto& which) { return which.param ? "Ahead" : "StepByStep"; });

TEST_P(EditsTest, TruncateAndAppendEqualANewPrompt) {
  const std::vector<TokenId> prompt = counting(1, 40);
  const StreamKey key = driver_.generate(1, prompt, 60);
  run_until(key, 25);
  const std::vector<TokenId> had = tokens_of(key);
  const std::vector<TokenId> appended = {7, 8, 9};
  ASSERT_TRUE(scheduler().truncate(key, static_cast<int>(had.size()) - 10));
  ASSERT_TRUE(scheduler().append(key, appended));
  scheduler().check_invariants();
  driver_.run();
  const std::vector<TokenId> forced = testing::first_of(had, 10) + appended;
  const auto& got = driver_.outcome(key);
  EXPECT_EQ(got.tokens,
            forced + FakeAgent::expected_tokens(prompt + forced, 47, testing::kSmallVocab));
  EXPECT_EQ(got.finish, FinishReason::kLength);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(got.logprobs[10 + i],
              FakeAgent::logprob_after(prompt + testing::first_of(forced, 10 + i), appended[i]));
  }
  EXPECT_EQ(got.num_reported, static_cast<int>(had.size()) + 50);
}

TEST_P(EditsTest, BacktrackIntoThePrompt) {
  const std::vector<TokenId> prompt = counting(1, 40);
  const StreamKey key = driver_.generate(1, prompt, 30);
  run_until(key, 5);
  const int num_left = 33;
  ASSERT_TRUE(scheduler().backtrack(key, 40 + static_cast<int>(tokens_of(key).size()) - num_left,
                                    std::vector<TokenId>{4}));
  driver_.run();
  std::vector<TokenId> forced = testing::first_of(prompt, num_left);
  forced.push_back(4);
  EXPECT_EQ(tokens_of(key),
            std::vector<TokenId>{4} + FakeAgent::expected_tokens(forced, 29, testing::kSmallVocab));
}

// No event tells of the backtracks before the forks: what these begin with says it.
TEST_P(EditsTest, AForkSaysWhatItsStreamHas) {
  const std::vector<TokenId> prompt = counting(1, 40);
  const StreamKey key = driver_.generate(1, prompt, 60);
  run_until(key, 8);
  const auto had = static_cast<int>(tokens_of(key).size());
  ASSERT_TRUE(scheduler().backtrack(key, 3, std::vector<TokenId>{9}));
  const auto behind = scheduler().fork(key, {1, 2});
  ASSERT_TRUE(behind);
  EXPECT_EQ(behind->fork_of, 1);
  EXPECT_EQ(behind->stream_id, 2);
  EXPECT_EQ(behind->num_prompt, 40);
  EXPECT_EQ(behind->num_shared, had - 3) << "appended tokens are the fork's own entries";
  EXPECT_EQ(behind->num_backtracked, 3);
  ASSERT_TRUE(scheduler().truncate(key, had - 2 + 5));
  const auto before = scheduler().fork(key, {1, 3});
  ASSERT_TRUE(before);
  EXPECT_EQ(before->num_prompt, 35);
  EXPECT_EQ(before->num_shared, 0);
  EXPECT_EQ(before->num_backtracked, had + 5);
  driver_.run();
  EXPECT_EQ(tokens_of({1, 3}),
            FakeAgent::expected_tokens(testing::first_of(prompt, 35), 60, testing::kSmallVocab));
  EXPECT_EQ(tokens_of({1, 3}), tokens_of(key));
}

TEST_P(EditsTest, AForkInto8ComputesOneTokenEach) {
  const StreamKey key = driver_.generate(1, counting(1, 300), 300);
  run_until(key, 200);
  const std::vector<TokenId> before = tokens_of(key);
  const std::int64_t computed = num_computed();
  const std::int64_t generated = scheduler().counters().num_generated_tokens;
  for (StreamId id = 2; id < 10; ++id) ASSERT_TRUE(scheduler().fork(key, {1, id}));
  step(1);
  for (StreamId id = 2; id < 10; ++id) {
    EXPECT_GE(tokens_of({1, id}).size(), 1U) << "a token within two steps";
  }
  // Each token that was computed gave one.
  EXPECT_EQ(num_computed() - computed, scheduler().counters().num_generated_tokens - generated);
  driver_.run();
  for (StreamId id = 2; id < 10; ++id) {
    EXPECT_EQ(before + tokens_of({1, id}), tokens_of(key));
  }
}

TEST_P(EditsTest, BacktrackOf20ComputesAtMostABlockOfWhatIsKept) {
  for (const int num_dropped : {1, 15, 16, 17, 20}) {
    const StreamKey key = driver_.generate(num_dropped, counting(num_dropped, 300), 300);
    run_until(key, 200);
    const std::int64_t computed = num_computed();
    const std::int64_t generated = scheduler().counters().num_generated_tokens;
    ASSERT_TRUE(scheduler().truncate(key, num_dropped));
    step(1);
    EXPECT_EQ(num_computed() - computed, scheduler().counters().num_generated_tokens - generated);
    driver_.run();
  }
}

TEST_P(EditsTest, SuspendedStreamsHoldNothingAndGoOn) {
  const std::vector<TokenId> prompt = counting(1, 50);
  const StreamKey key = driver_.generate(1, prompt, 40);
  const StreamKey waiting = driver_.generate(2, counting(9, 40), 5, 2);
  ASSERT_TRUE(scheduler().suspend(waiting));
  run_until(key, 10);
  const std::size_t num_tokens = tokens_of(key).size();
  ASSERT_TRUE(scheduler().suspend(key));
  ASSERT_TRUE(scheduler().suspend(key));
  scheduler().check_invariants();
  EXPECT_TRUE(scheduler().idle());
  EXPECT_EQ(scheduler().num_suspended(), 2);
  EXPECT_EQ(scheduler().pool().num_pinned(), 0);
  EXPECT_FALSE(driver_.step());
  ASSERT_TRUE(scheduler().truncate(key, 3));
  ASSERT_TRUE(scheduler().fork(key, {1, 5}));
  driver_.run();
  EXPECT_EQ(tokens_of(key).size(), num_tokens);
  ASSERT_TRUE(scheduler().resume(key));
  ASSERT_TRUE(scheduler().resume(key));
  ASSERT_TRUE(scheduler().resume(waiting));
  driver_.run();
  EXPECT_EQ(tokens_of(key), FakeAgent::expected_tokens(prompt, 40, testing::kSmallVocab));
  EXPECT_EQ(tokens_of(waiting),
            FakeAgent::expected_tokens(counting(9, 40), 5, testing::kSmallVocab));
  EXPECT_EQ(tokens_of({1, 5}).size(), 40 - num_tokens + 3);
  const StreamKey ended = driver_.generate(3, prompt, 40);
  ASSERT_TRUE(scheduler().suspend(ended));
  EXPECT_TRUE(scheduler().remove(ended));
  EXPECT_EQ(scheduler().num_suspended(), 0);
}

TEST_P(EditsTest, WhatIsNotAllowedChangesNothing) {
  SamplingParams params;
  params.mask = [] {
    auto mask = std::make_shared<TokenMask>();
    mask->words.assign(16, ~std::uint64_t{0} - 1);  // all but token 0 of each 64
    return mask;
  }();
  const StreamKey key = driver_.generate(1, counting(1, 10), 20, 1, params);
  const StreamKey scoring = driver_.score(2, counting(1, 10), {1, 2, 3});
  const auto error_of = [](const auto& result) {
    return result ? std::string() : result.error().message;
  };
  EXPECT_EQ(error_of(scheduler().truncate({1, 9}, 1)),
            "stream_id: 9 is not live; allowed are live streams");
  EXPECT_EQ(error_of(scheduler().fork({1, 9}, {1, 10})),
            "stream_id: 9 is not live; allowed are live streams");
  EXPECT_EQ(error_of(scheduler().truncate(scoring, 1)),
            "stream_id: 2 scores; allowed are streams that generate");
  EXPECT_EQ(error_of(scheduler().fork(scoring, {1, 3})),
            "stream_id: 2 scores; allowed are streams that generate");
  EXPECT_EQ(error_of(scheduler().fork(key, scoring)),
            "streams: 2 is live; allowed are ids of no live stream");
  run_until(key, 5);
  const int length = 10 + static_cast<int>(tokens_of(key).size());
  EXPECT_EQ(error_of(scheduler().truncate(key, length)),
            "drop: is " + std::to_string(length) + "; allowed are at most " +
                std::to_string(length - 1) + " (the stream's tokens but the first)");
  EXPECT_EQ(error_of(scheduler().backtrack(key, std::numeric_limits<std::int64_t>::max(), {})),
            "drop: is 9223372036854775807; allowed are at most " + std::to_string(length - 1) +
                " (the stream's tokens but the first)");
  EXPECT_EQ(error_of(scheduler().backtrack(key, length - 12, counting(1, 18))),
            "append: has 18 tokens; allowed are at most 17 (one less than max_tokens and the "
            "context leave room for)");
  EXPECT_EQ(error_of(scheduler().append(key, std::vector<TokenId>{5, 64})),
            "append: token 64 has probability 0; allowed are tokens that the stream's logit_bias, "
            "mask and min_tokens do not make impossible");
  SamplingChanges fewer;
  fewer.values.max_tokens = 5;
  set(fewer, "max_tokens");
  EXPECT_EQ(error_of(scheduler().fork(key, {1, 3}, fewer)),
            "max_tokens: is 5; allowed is more than the " + std::to_string(length - 10) +
                " tokens that the stream has generated");
  for (StreamId id = 100; id < 100 + Scheduler::kMaxForks; ++id) {
    ASSERT_TRUE(scheduler().fork(key, {2, id}));
  }
  EXPECT_EQ(error_of(scheduler().fork(key, {1, 3})),
            "streams: stream 1 was forked 64 times; allowed are at most 64");
  driver_.run();
  EXPECT_EQ(tokens_of(key), FakeAgent::expected_tokens(counting(1, 10), 20, testing::kSmallVocab));
}

// Of the stream's mask: the ends cannot be drawn yet, and other bits are of no token.
TEST_P(EditsTest, AForkThatCouldDrawNothingBeforeMinTokensIsRefused) {
  SamplingParams params;
  auto mask = std::make_shared<TokenMask>();
  mask->words.assign((testing::kSmallVocab + 63) / 64, 0);
  mask->words[0] = 0b1001;
  mask->words.back() = std::uint64_t{1} << 63;
  ASSERT_FALSE(mask->allows(testing::kSmallVocab - 1));
  params.mask = mask;
  params.stop_token_ids = {0, 3};
  const StreamKey key = driver_.generate(1, counting(1, 10), 20, 1, params);
  SamplingChanges changes;
  changes.values.min_tokens = 4;
  set(changes, "min_tokens");
  const auto fork = scheduler().fork(key, {1, 2}, changes);
  ASSERT_FALSE(fork);
  EXPECT_EQ(fork.error().message,
            "min_tokens: none of the tokens that the stream's mask allows can be drawn before it; "
            "allowed are at most 0");
  EXPECT_EQ(scheduler().sequence({1, 2}), nullptr);
  changes.values.min_tokens = 0;
  EXPECT_TRUE(scheduler().fork(key, {1, 2}, changes));
  driver_.run();
}

// Before min_tokens the bias depends on the position: each appended token has a row of its own.
TEST_P(EditsTest, AppendedTokensBeforeMinTokensGoOneAStep) {
  for (const bool has_min_tokens : {false, true}) {
    SamplingParams params;
    params.min_tokens = has_min_tokens ? 20 : 0;
    const StreamKey key = driver_.generate(1, counting(1, 20), 30, 1, params);
    run_until(key, 2);
    ASSERT_TRUE(scheduler().append(key, counting(70, 5)));
    const std::size_t num_before = tokens_of(key).size();
    step(1);
    // A step ahead gives one more.
    EXPECT_EQ(tokens_of(key).size() - num_before,
              (has_min_tokens ? 1U : 6U) + (GetParam() ? 1U : 0U));
    driver_.run();
  }
}

TEST_P(EditsTest, NothingIsReportedTwiceAfterPreemption) {
  SchedulerDriver driver(agent(12), [] {
    SchedulerOptions made = small_options();
    made.context_length = 160;
    made.batch.max_tokens = 16;
    return made;
  }());
  const StreamKey older = driver.generate(1, counting(1, 30), 100);
  const StreamKey younger = driver.generate(2, counting(500, 30), 100);
  for (int i = 0; i < 12; ++i) driver.step();
  driver.settle();
  const int had = driver.outcome(younger).num_reported;
  const std::vector<TokenId> before = driver.outcome(younger).tokens;
  ASSERT_TRUE(driver.scheduler().append(younger, counting(800, 40)));
  driver.run();
  EXPECT_GT(driver.scheduler().counters().num_preemptions, 0);
  EXPECT_EQ(driver.outcome(younger).num_reported, 100);
  const std::vector<TokenId> forced = before + counting(800, 40);
  EXPECT_EQ(driver.outcome(younger).tokens,
            forced + FakeAgent::expected_tokens(counting(500, 30) + forced, 60 - had,
                                                testing::kSmallVocab));
  EXPECT_EQ(driver.outcome(older).tokens,
            FakeAgent::expected_tokens(counting(1, 30), 100, testing::kSmallVocab));
}

TEST_P(EditsTest, MinTokensHoldsAgainAfterABacktrack) {
  // The model would end with its third token.
  const std::vector<TokenId> natural =
      FakeAgent::expected_tokens(counting(1, 20), 8, testing::kSmallVocab);
  SamplingParams params;
  params.min_tokens = 6;
  params.stop_token_ids = {natural[2]};
  const StreamKey key = driver_.generate(1, counting(1, 20), 30, 1, params);
  run_until(key, 8);
  const auto had = static_cast<int>(tokens_of(key).size());
  EXPECT_EQ(testing::first_of(tokens_of(key), 2), testing::first_of(natural, 2));
  EXPECT_NE(tokens_of(key)[2], natural[2]);
  const std::vector<TokenId> first = testing::first_of(tokens_of(key), 8);
  ASSERT_FALSE(scheduler().backtrack(key, had - 2, std::vector<TokenId>{natural[2]}));
  ASSERT_TRUE(scheduler().truncate(key, had - 2));
  ASSERT_TRUE(scheduler().fork(key, {1, 2}));
  step(8);
  EXPECT_EQ(testing::first_of(tokens_of(key), 8), first);
  EXPECT_EQ(testing::first_of(tokens_of(key), 2) + testing::first_of(tokens_of({1, 2}), 6), first);
  driver_.run();
}

// Keys and values depend on the adapter.
TEST_P(EditsTest, StreamsOfOtherAdaptersShareNothing) {
  const std::shared_ptr<const Adapter> adapters[] = {testing::fake_adapter("a", 2),
                                                     testing::fake_adapter("b", 2)};
  const auto add = [&](StreamId id, int which) {
    return driver_.generate(id, counting(1, 50), 20, 1, {}, adapters[which]);
  };
  const StreamKey first = add(1, 0);
  driver_.run();
  const StreamKey other = add(2, 1);
  driver_.run();
  EXPECT_EQ(scheduler().counters().num_cached_tokens, 0);
  const StreamKey same = add(3, 0);
  run_until(same, 1);
  EXPECT_EQ(scheduler().counters().num_cached_tokens, 49);
  ASSERT_TRUE(scheduler().fork(same, {1, 4}));
  const std::int64_t computed = num_computed();
  step(1);
  EXPECT_LE(num_computed() - computed, 4) << "its fork is of the same adapter";
  driver_.run();
  EXPECT_EQ(tokens_of(first), tokens_of(same));
  EXPECT_NE(tokens_of(other), tokens_of(same));
}

// Nobody else has the adapter any more: it is served no longer.
TEST_P(EditsTest, AStreamKeepsItsAdapterUntilItEnds) {
  auto adapter = testing::fake_adapter("a", 3);
  const std::weak_ptr<const Adapter> alive = adapter;
  const std::vector<TokenId> prompt = counting(1, 40);
  const std::vector<TokenId> alone =
      FakeAgent::expected_tokens(prompt, 60, testing::kSmallVocab, -1, adapter.get());
  const StreamKey key = driver_.generate(1, prompt, 60, 1, {}, adapter);
  run_until(key, 8);
  adapter.reset();
  // Others join, one of an adapter of the same name.
  auto other = testing::fake_adapter("a", 3);
  driver_.generate(2, prompt, 4, 1, {}, other);
  run_until(key, 10);
  ASSERT_TRUE(scheduler().suspend(key));
  step(2);
  ASSERT_TRUE(scheduler().resume(key));
  run_until(key, 12);
  ASSERT_TRUE(scheduler().truncate(key, 4));
  ASSERT_TRUE(scheduler().fork(key, {1, 3}));
  ASSERT_TRUE(scheduler().append(key, std::vector<TokenId>{alone[tokens_of(key).size() - 4]}));
  EXPECT_FALSE(alive.expired());
  driver_.run();
  EXPECT_EQ(tokens_of(key), alone);
  const auto num_of_fork = static_cast<std::ptrdiff_t>(tokens_of({1, 3}).size());
  EXPECT_GT(num_of_fork, 40);
  EXPECT_EQ(tokens_of({1, 3}), std::vector<TokenId>(alone.end() - num_of_fork, alone.end()));
  EXPECT_TRUE(alive.expired()) << "with the last stream";
  driver_.generate(4, prompt, 4, 1, {}, other);
  driver_.run();
  scheduler().check_invariants();
}

TEST_P(EditsTest, ForksDrawBySeedsOfTheirOwn) {
  SamplingParams params;
  params.seed = 5;
  const StreamKey key = driver_.generate(1, counting(1, 20), 30, 1, params);
  run_until(key, 2);
  SamplingChanges changes;
  ASSERT_TRUE(scheduler().fork(key, {1, 2}));
  ASSERT_TRUE(scheduler().fork(key, {1, 3}));
  changes.values.seed = 77;
  set(changes, "seed");
  ASSERT_TRUE(scheduler().fork(key, {1, 4}, changes));
  const StepPlan& plan = scheduler().plan();
  std::vector<std::uint64_t> seeds;
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    seeds.push_back(scheduler().sequence_of(plan, i)->params.seed);
  }
  ASSERT_EQ(seeds.size(), 4U);
  // The first outputs of splitmix64 from 5.
  EXPECT_EQ(seeds,
            (std::vector<std::uint64_t>{5, 7134611160154358618ULL, 13877614986023876344ULL, 77}));
  scheduler().abort({ErrorCode::kInternal, "not run"});
}

}  // namespace
}  // namespace lmtp::scheduler
