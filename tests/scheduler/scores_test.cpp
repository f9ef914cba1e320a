// Log probabilities that are known from before: which Scores compute nothing, and how little others
// do.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "scheduler_driver.h"
#include "small_cases.h"

namespace lmtp::scheduler {
namespace {

using testing::counting;
using testing::FakeAgent;
using testing::SchedulerDriver;

// With an agent that runs ahead, too.
class ScoresTest : public ::testing::TestWithParam<bool> {
 protected:
  static SchedulerOptions options(std::int64_t score_cache_bytes, int max_chunk_tokens = 0) {
    SchedulerOptions options = testing::small_options();
    options.score_cache_bytes = score_cache_bytes;
    options.debug.max_chunk_tokens = max_chunk_tokens;
    return options;
  }
  static testing::FakeAgentOptions agent(int num_blocks) {
    testing::FakeAgentOptions agent = testing::small_agent(num_blocks);
    agent.runs_ahead = GetParam();
    return agent;
  }
  explicit ScoresTest(std::int64_t score_cache_bytes = 1 << 20, int num_blocks = 200,
                      int max_chunk_tokens = 0)
      : driver_(agent(num_blocks), options(score_cache_bytes, max_chunk_tokens)) {}

  const SchedulerCounters& counters() { return driver_.scheduler().counters(); }

  StreamKey ask(const std::vector<TokenId>& prompt, const std::vector<TokenId>& scored,
                std::shared_ptr<const Adapter> adapter = nullptr) {
    return driver_.score(++last_id_, prompt, scored, 1, std::move(adapter));
  }
  void expect_right(StreamKey key, const std::vector<TokenId>& prompt,
                    const std::vector<TokenId>& scored, const Adapter* adapter = nullptr) {
    const SchedulerDriver::Outcome& outcome = driver_.outcome(key);
    EXPECT_EQ(outcome.tokens, scored);
    EXPECT_EQ(outcome.finish, FinishReason::kStop);
    std::vector<TokenId> prefix = prompt;
    for (std::size_t i = 0; i < outcome.logprobs.size(); ++i) {
      const float right =
          prefix.empty() ? 0.0F : FakeAgent::logprob_after(prefix, scored[i], adapter);
      EXPECT_EQ(outcome.logprobs[i], right) << i;
      prefix.push_back(scored[i]);
    }
  }
  // Tokens that were computed for it.
  std::int64_t score(const std::vector<TokenId>& prompt, const std::vector<TokenId>& scored,
                     const std::shared_ptr<const Adapter>& adapter = nullptr) {
    const std::int64_t before = counters().num_tokens_computed;
    const StreamKey key = ask(prompt, scored, adapter);
    driver_.run();
    expect_right(key, prompt, scored, adapter.get());
    return counters().num_tokens_computed - before;
  }
  StreamKey generate(const std::vector<TokenId>& prompt, int count, SamplingParams params = {}) {
    const StreamKey key = driver_.generate(++last_id_, prompt, count, 1, std::move(params));
    driver_.run();
    return key;
  }

  SchedulerDriver driver_;
  StreamId last_id_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Agents, ScoresTest, ::testing::Bool(),
                         [](const auto& ahead) { return ahead.param ? "Ahead" : "InTurn"; });

// The tokens that a Score lists are known the next time, each by itself as well.
TEST_P(ScoresTest, ListedTokensAreKnownLater) {
  for (const int num_prompt : {1, 15, 16, 17, 40}) {
    const auto prompt = counting(3 * num_prompt, num_prompt);
    std::vector<TokenLogprob> listed;
    driver_.set_on_event([&](const SchedulerEvent& event) {
      const auto& token = std::get<TokenEvent>(event.entry);
      ASSERT_NE(token.listed_logprobs, nullptr);
      listed = *token.listed_logprobs;
    });
    const auto list = [&](TokenId scored, const std::vector<TokenId>& ids) {
      const std::int64_t before = counters().num_tokens_computed;
      listed.clear();
      driver_.score(++last_id_, prompt, {scored}, 1, nullptr, ids);
      driver_.run();
      EXPECT_EQ(listed.size(), ids.size());
      for (std::size_t i = 0; i < listed.size(); ++i) {
        EXPECT_EQ(listed[i].token, ids[i]);
        EXPECT_EQ(listed[i].logprob, FakeAgent::logprob_after(prompt, ids[i]));
      }
      return counters().num_tokens_computed - before;
    };
    EXPECT_GT(list(5, {7, 5, 6}), 0);
    EXPECT_EQ(list(5, {7, 5, 6}), 0);
    EXPECT_EQ(list(6, {5, 7}), 0) << "others of them, in another order";
    EXPECT_EQ(list(5, {7, 8}), 1) << "8 is not known";
    driver_.set_on_event({});
    EXPECT_EQ(score(prompt, {7}), 0);
  }
}

TEST_P(ScoresTest, OneThatComesAgainComputesNothing) {
  int first = 0;
  for (const int num_prompt : {0, 1, 15, 16, 17, 40}) {
    for (const int num_scored : {1, 2, 15, 16, 17, 100}) {
      const auto prompt = counting(first, num_prompt);
      const auto scored = counting(first + num_prompt, num_scored);
      first += 7;
      const bool is_given = num_prompt == 0 && num_scored == 1;
      EXPECT_EQ(score(prompt, scored) > 0, !is_given) << num_prompt << " " << num_scored;
      const std::int64_t before = counters().num_tokens_computed;
      const StreamKey again = ask(prompt, scored);
      EXPECT_TRUE(driver_.outcome(again).done) << "it waits for no step";
      expect_right(again, prompt, scored);
      EXPECT_EQ(counters().num_tokens_computed, before);
      EXPECT_EQ(score({}, testing::joined(prompt, scored)) > 0, num_prompt > 1)
          << "other tokens of it";
    }
  }
  EXPECT_TRUE(driver_.scheduler().idle());
}

TEST_P(ScoresTest, ThatIsCounted) {
  score(counting(0, 40), counting(100, 10));
  EXPECT_EQ(counters().num_cached_scores, 0);
  const std::int64_t num_cached = counters().num_cached_tokens;
  EXPECT_EQ(score(counting(0, 40), counting(100, 10)), 0);
  EXPECT_EQ(counters().num_scored_tokens, 20);
  EXPECT_EQ(counters().num_cached_scores, 10);
  EXPECT_EQ(counters().num_prompt_tokens, 80);
  EXPECT_EQ(counters().num_cached_tokens - num_cached, 40);
  EXPECT_GT(driver_.scheduler().score_cache().num_bytes(), 0);
}

TEST_P(ScoresTest, WhatWasGeneratedComputesNothing) {
  const auto prompt = counting(0, 21);
  const auto text = driver_.outcome(generate(prompt, 30)).tokens;
  EXPECT_EQ(score(prompt, text), 0);
  const std::vector<TokenId> begin(text.begin(), text.begin() + 7);
  EXPECT_EQ(score(prompt, begin), 0) << "a part of it";
  EXPECT_EQ(score(testing::joined(prompt, begin), {text.begin() + 7, text.end()}), 0);
}

TEST_P(ScoresTest, WhatWasGeneratedByOtherLogitsIsComputed) {
  const auto biased = [](float value) {
    SamplingParams params;
    params.logit_bias = std::make_shared<LogitBias>(LogitBias{{999}, {value}});
    return params;
  };
  std::vector<SamplingParams> all(3);
  all[0] = biased(0.5F);
  all[1].mask = std::make_shared<TokenMask>(
      TokenMask{.words = std::vector<std::uint64_t>(16, ~std::uint64_t{0}), .num_bytes = 125});
  all[2].repetition_penalty = 1.5F;
  int first = 0;
  for (SamplingParams params : all) {
    for (const bool raw : {false, true}) {
      params.raw_logprobs = raw;
      const auto prompt = counting(first += 50, 21);
      const auto text = driver_.outcome(generate(prompt, 20, params)).tokens;
      EXPECT_EQ(score(prompt, text), raw ? 0 : 20) << first;
    }
  }
}

TEST_P(ScoresTest, OnlyTheRestIsComputed) {
  const auto prompt = counting(0, 40);
  score(prompt, counting(100, 30));
  // The token before the first one that is not known, and those behind it but the last.
  EXPECT_EQ(score(prompt, counting(100, 35)), 5);
  EXPECT_EQ(score(prompt, testing::joined(counting(100, 20), counting(500, 10))), 10);
  EXPECT_EQ(score(prompt, counting(100, 12)), 0);
  EXPECT_EQ(counters().num_cached_scores, 30 + 20 + 12);
  // Keys are there and no log probabilities.
  generate(counting(600, 50), 1);
  EXPECT_EQ(score(counting(600, 30), counting(630, 20)), 20);
  EXPECT_EQ(score(counting(600, 30), counting(630, 20)), 0);
}

TEST_P(ScoresTest, CandidatesComputeTheirPrefixOnceAndThenNothing) {
  constexpr int kCandidates = 8;
  for (const int num_prefix : {10, 30, 100}) {
    const auto prefix = counting(num_prefix * 2, num_prefix);
    for (const bool warm : {false, true}) {
      const std::int64_t before = counters().num_tokens_computed;
      std::vector<std::pair<StreamKey, std::vector<TokenId>>> asked;
      for (int candidate = 0; candidate < kCandidates; ++candidate) {
        const std::vector<TokenId> scored = {700 + candidate, 800, 900};
        asked.emplace_back(ask(prefix, scored), scored);
      }
      if (!warm) driver_.run();
      for (const auto& [key, scored] : asked) expect_right(key, prefix, scored);
      // Each has its own last tokens, and the prefix' last one, whose logits it needs.
      EXPECT_EQ(counters().num_tokens_computed - before,
                warm ? 0 : num_prefix - 1 + kCandidates * 3)
          << num_prefix;
    }
  }
}

TEST_P(ScoresTest, ABurstOfEqualOnesIsComputedOnce) {
  for (const int num_prompt : {1, 20}) {
    const auto prompt = counting(num_prompt * 5, num_prompt);
    const auto scored = counting(300, 150);  // several steps
    const std::int64_t before = counters().num_tokens_computed;
    std::vector<StreamKey> keys;
    for (int i = 0; i < 5; ++i) keys.push_back(ask(prompt, scored));
    driver_.run();
    for (const StreamKey& key : keys) expect_right(key, prompt, scored);
    EXPECT_EQ(counters().num_tokens_computed - before, num_prompt + 149);
  }
}

TEST_P(ScoresTest, OneThatWaitsGetsNothingWhileItIsHeld) {
  const auto prompt = counting(0, 20);
  const auto scored = counting(300, 100);
  ask(prompt, scored);
  const StreamKey held = ask(prompt, scored);
  driver_.scheduler().hold(held);
  while (driver_.step()) {
  }
  EXPECT_TRUE(driver_.outcome(held).tokens.empty());
  driver_.scheduler().release(held);
  driver_.run();
  expect_right(held, prompt, scored);
}

TEST_P(ScoresTest, AlternativesAreComputed) {
  const auto prompt = counting(0, 20);
  score(prompt, {30, 31});
  auto sequence = std::make_unique<Sequence>();
  sequence->key = {1, 99};
  sequence->share = 1;
  sequence->kind = RequestKind::kScore;
  sequence->num_prompt = 20;
  sequence->tokens = testing::joined(prompt, {30, 31});
  sequence->params.top_logprobs = 3;
  int num_lists = 0;
  driver_.set_on_event([&](const SchedulerEvent& event) {
    num_lists += std::get<TokenEvent>(event.entry).top_logprobs.has_value() ? 1 : 0;
  });
  const std::int64_t before = counters().num_tokens_computed;
  driver_.add(std::move(sequence));
  driver_.run();
  EXPECT_EQ(counters().num_tokens_computed - before, 2);
  EXPECT_EQ(num_lists, 2);
}

TEST_P(ScoresTest, AdaptersShareNothing) {
  const auto one = testing::fake_adapter("one", 2);
  const auto other = testing::fake_adapter("other", 2);
  const auto prompt = counting(0, 20);
  const auto scored = counting(100, 20);
  for (const auto& adapter : {std::shared_ptr<const Adapter>(), one, other}) {
    EXPECT_EQ(score(prompt, scored, adapter), 39);
    EXPECT_EQ(score(prompt, scored, adapter), 0);
  }
  EXPECT_EQ(score(prompt, scored, testing::fake_adapter("one", 2)), 39) << "loaded anew";
}

// What is more than may be given at a time comes with later steps, or without where there are none.
TEST_P(ScoresTest, SoManyAtMostAreGivenAtATime) {
  const auto prompt = counting(0, 20);
  const auto scored = counting(100, 100);
  score(prompt, scored);
  driver_.scheduler().set_recalls(150);
  std::vector<StreamKey> keys;
  for (int i = 0; i < 4; ++i) keys.push_back(ask(prompt, scored));
  EXPECT_EQ(counters().num_cached_scores, 150);
  EXPECT_TRUE(driver_.outcome(keys[0]).done);
  EXPECT_EQ(driver_.outcome(keys[1]).num_reported, 50);
  driver_.generate(++last_id_, counting(500, 20), 3);
  driver_.scheduler().set_recalls(10);
  driver_.step();
  driver_.settle();
  EXPECT_EQ(counters().num_cached_scores, 160);
  driver_.run();
  for (const StreamKey key : keys) expect_right(key, prompt, scored);
  EXPECT_EQ(counters().num_cached_scores, 400) << "none is computed";
}

TEST_P(ScoresTest, WhatAnEditLeavesIsKept) {
  const auto prompt = counting(0, 20);
  const StreamKey key = driver_.generate(++last_id_, prompt, 60);
  for (int i = 0; i < 25; ++i) driver_.step();
  driver_.settle();
  ASSERT_TRUE(driver_.scheduler().backtrack(key, 12, counting(400, 9)));
  driver_.run();
  const auto text = driver_.outcome(key).tokens;
  ASSERT_EQ(text.size(), 60U);
  EXPECT_EQ(score(prompt, text), 0);
}

TEST_P(ScoresTest, AFailedRowLeavesNothing) {
  testing::FakeAgentOptions failing = agent(200);
  failing.row_fails = [](const SlotState& state) { return state.key.stream == 1; };
  SchedulerDriver driver(failing, options(1 << 20));
  EXPECT_FALSE(driver.outcome(driver.score(1, counting(0, 20), counting(50, 10))).done);
  driver.run();
  driver.score(2, counting(0, 20), counting(50, 10));
  driver.run();
  EXPECT_EQ(driver.scheduler().counters().num_cached_scores, 0);
}

// Prompts take several steps, which end within blocks.
class ChunkedScoresTest : public ScoresTest {
 protected:
  ChunkedScoresTest() : ScoresTest(1 << 20, 200, 5) {}
};
INSTANTIATE_TEST_SUITE_P(Agents, ChunkedScoresTest, ::testing::Bool(),
                         [](const auto& ahead) { return ahead.param ? "Ahead" : "InTurn"; });

TEST_P(ChunkedScoresTest, OfOneConnectionEachTokenIsComputedOnce) {
  constexpr int kTails = 8;
  for (const int num_prefix : {1, 9, 16, 17, 40, 44}) {
    const auto prefix = counting(num_prefix * 7, num_prefix);
    const std::int64_t before = counters().num_tokens_computed;
    std::vector<std::pair<StreamKey, std::vector<TokenId>>> asked;
    for (int i = 0; i < kTails; ++i) {
      const auto prompt = testing::joined(prefix, counting(500 + 20 * i, 1 + 2 * i));
      asked.emplace_back(ask(prompt, {900, 901}), prompt);
    }
    driver_.run();
    for (const auto& [key, prompt] : asked) expect_right(key, prompt, {900, 901});
    EXPECT_EQ(counters().num_tokens_computed - before, num_prefix + kTails * (kTails + 1))
        << num_prefix;
  }
}

// A token of the prefix is worth no wait for another connection's prompt.
TEST_P(ChunkedScoresTest, OfOthersTheyWaitForHalfOfWhatTheyLack) {
  for (const ConnectionId connection : {1, 2}) {
    const auto shared = counting(static_cast<int>(100 * connection), 17);
    generate(testing::first_of(shared, 16), 1);
    const std::int64_t before = counters().num_tokens_computed;
    driver_.score(++last_id_, testing::joined(shared, counting(400, 40)), {7});
    driver_.score(++last_id_, testing::joined(shared, counting(600, 20)), {7}, connection);
    driver_.run();
    EXPECT_EQ(counters().num_tokens_computed - before, 61 + (connection == 1 ? 0 : 1));
  }
}

TEST_P(ChunkedScoresTest, TheOthersGoOnWhereTheOneThatTheyWaitForIsCancelled) {
  const auto prefix = counting(0, 40);
  const StreamKey first = ask(testing::joined(prefix, {500}), {900});
  std::vector<std::pair<StreamKey, std::vector<TokenId>>> others;
  for (const TokenId tail : {600, 700}) {
    const auto prompt = testing::joined(prefix, {tail});
    others.emplace_back(ask(prompt, {900, 901}), prompt);
  }
  driver_.step();
  driver_.settle();
  EXPECT_EQ(driver_.scheduler().num_running(), 1);
  ASSERT_TRUE(driver_.scheduler().remove(first));
  driver_.run();
  for (const auto& [key, prompt] : others) expect_right(key, prompt, {900, 901});
  EXPECT_LE(counters().num_tokens_computed, 40 + 2 * 2);
}

// A pool of one stream of the whole context, and log probabilities of nine short texts. Those of a
// text of the whole context leave room for one more.
class FewScoresTest : public ScoresTest {
 protected:
  FewScoresTest() : ScoresTest(5'000, Scheduler::min_blocks(256)) {}
};
INSTANTIATE_TEST_SUITE_P(Agents, FewScoresTest, ::testing::Bool(),
                         [](const auto& ahead) { return ahead.param ? "Ahead" : "InTurn"; });

TEST_P(FewScoresTest, TheyOutliveKeysAndGoInTheirTurn) {
  const auto prompt = counting(0, 20);
  const auto scored = counting(500, 10);
  score(prompt, scored);
  generate(counting(200, 250), 1);  // takes all blocks
  EXPECT_EQ(score(prompt, scored), 0);
  for (int other = 1; other < 12; ++other) score(counting(other * 50, 20), scored);
  EXPECT_EQ(counters().num_cached_scores, 10);
  EXPECT_GT(score(prompt, scored), 0) << "computed again, and right";
  EXPECT_LE(driver_.scheduler().score_cache().num_bytes(), 5'000);
}

class NoScoresTest : public ScoresTest {
 protected:
  NoScoresTest() : ScoresTest(0) {}
};
INSTANTIATE_TEST_SUITE_P(Agents, NoScoresTest, ::testing::Bool(),
                         [](const auto& ahead) { return ahead.param ? "Ahead" : "InTurn"; });

TEST_P(NoScoresTest, WithoutMemoryForThemAllAreComputed) {
  EXPECT_EQ(score(counting(0, 20), counting(500, 10)), 29);
  EXPECT_EQ(score(counting(0, 20), counting(500, 10)), 10);
  EXPECT_EQ(counters().num_cached_scores, 0);
}

}  // namespace
}  // namespace lmtp::scheduler
