// What ends a stream besides its length, what keeps it from ending, and what it is told.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "scheduler_driver.h"
#include "small_cases.h"

namespace lmtp::scheduler {
namespace {

using testing::counting;
using testing::FakeAgent;
using testing::SchedulerDriver;
using testing::small_options;

constexpr int kEndVocab = testing::kSmallVocab;

// Ends the stream at the first of these tokens that may; keeps what it was asked.
class TokenStops : public StopChecker {
 public:
  explicit TokenStops(std::vector<TokenId> stops) : stops_(std::move(stops)) {}

  bool push(TokenId token, bool may_stop) override {
    asked.emplace_back(token, may_stop);
    return may_stop && std::ranges::find(stops_, token) != stops_.end();
  }
  std::unique_ptr<StopChecker> restarted(std::span<const TokenId> /*before*/,
                                         std::span<const TokenId> generated) const override {
    auto made = std::make_unique<TokenStops>(stops_);
    for (const TokenId token : generated) made->push(token, false);
    return made;
  }
  std::vector<TokenId> tokens() const {
    std::vector<TokenId> tokens;
    for (const auto& [token, may_stop] : asked) tokens.push_back(token);
    return tokens;
  }

  std::vector<std::pair<TokenId, bool>> asked;

 private:
  std::vector<TokenId> stops_;
};

// With an agent that runs ahead, and with one that does not.
class StreamEndTest : public ::testing::TestWithParam<bool> {
 protected:
  static SchedulerDriver driver(SchedulerOptions options = small_options(), int num_blocks = 200) {
    testing::FakeAgentOptions agent = testing::small_agent(num_blocks);
    agent.runs_ahead = GetParam();
    return {agent, std::move(options)};
  }

  static std::unique_ptr<Sequence> sequence(StreamId id, std::vector<TokenId> prompt,
                                            int max_tokens) {
    auto made = std::make_unique<Sequence>();
    made->key = {1, id};
    made->num_prompt = static_cast<int>(prompt.size());
    made->tokens = std::move(prompt);
    made->params.max_tokens = max_tokens;
    return made;
  }
};

INSTANTIATE_TEST_SUITE_P(Agents, StreamEndTest, ::testing::Bool(),
                         [](const auto& which) { return which.param ? "Ahead" : "StepByStep"; });

TEST_P(StreamEndTest, AStopTokenIsSentAndEndsTheStream) {
  const auto prompt = counting(0, 20);
  const auto tokens = FakeAgent::expected_tokens(prompt, 30, kEndVocab);
  auto d = driver();
  auto stopped = sequence(1, prompt, 30);
  stopped->params.stop_token_ids = {tokens[9], tokens[6], 5};
  const auto key = d.add(std::move(stopped));
  const auto other = d.generate(2, counting(300, 9), 30);
  d.run();
  EXPECT_EQ(d.outcome(key).tokens, testing::first_of(tokens, 7));
  EXPECT_EQ(d.outcome(key).finish, FinishReason::kStop);
  EXPECT_EQ(d.outcome(other).tokens, FakeAgent::expected_tokens(counting(300, 9), 30, kEndVocab));
  EXPECT_EQ(d.scheduler().pool().num_pinned(), 0);
}

TEST_P(StreamEndTest, EosThatIsIgnoredIsATokenAsOthers) {
  const auto prompt = counting(0, 20);
  const auto tokens = FakeAgent::expected_tokens(prompt, 12, kEndVocab);
  SchedulerOptions options = small_options();
  options.eos_ids = {tokens[3], tokens[8]};
  auto d = driver(options);
  auto ignoring = sequence(1, prompt, 12);
  ignoring->params.ignore_eos = true;
  const auto key = d.add(std::move(ignoring));
  auto stopped = sequence(2, prompt, 12);
  stopped->params.ignore_eos = true;
  stopped->params.stop_token_ids = {tokens[8]};
  const auto stop_key = d.add(std::move(stopped));
  d.run();
  EXPECT_EQ(d.outcome(key).tokens, tokens);
  EXPECT_EQ(d.outcome(key).finish, FinishReason::kLength);
  EXPECT_EQ(d.outcome(stop_key).tokens, testing::first_of(tokens, 9));
  EXPECT_EQ(d.outcome(stop_key).finish, FinishReason::kStop);
}

// Nothing is computed behind the end but the step that was under way, and what was computed stays.
TEST_P(StreamEndTest, ACheckerIsAskedOnceATokenAndEndsTheStreamInThatStep) {
  const auto prompt = counting(0, 20);
  const auto tokens = FakeAgent::expected_tokens(prompt, 40, kEndVocab);
  auto d = driver();
  const auto checker = std::make_shared<TokenStops>(std::vector<TokenId>{tokens[24]});
  auto checked = sequence(1, prompt, 40);
  checked->stops = checker;
  const auto key = d.add(std::move(checked));
  d.run();
  EXPECT_EQ(d.outcome(key).tokens, testing::first_of(tokens, 25));
  EXPECT_EQ(d.outcome(key).finish, FinishReason::kStop);
  EXPECT_EQ(checker->tokens(), testing::first_of(tokens, 25));
  EXPECT_EQ(d.scheduler().pool().num_pinned(), 0);
  EXPECT_LE(d.scheduler().counters().num_tokens_computed, 20 + 24 + (GetParam() ? 1 : 0));
  auto longer = prompt;
  longer.insert(longer.end(), tokens.begin(), tokens.begin() + 25);
  const auto after = d.generate(2, longer, 3);
  d.run();
  EXPECT_EQ(d.outcome(after).tokens, FakeAgent::expected_tokens(longer, 3, kEndVocab));
  EXPECT_EQ(d.scheduler().counters().num_cached_tokens, 44);
}

TEST_P(StreamEndTest, ATokenThatStopsIsAStopAtTheLengthToo) {
  const auto prompt = counting(0, 20);
  const auto tokens = FakeAgent::expected_tokens(prompt, 5, kEndVocab);
  auto d = driver();
  auto checked = sequence(1, prompt, 5);
  checked->stops = std::make_shared<TokenStops>(std::vector<TokenId>{tokens[4]});
  const auto key = d.add(std::move(checked));
  d.run();
  EXPECT_EQ(d.outcome(key).finish, FinishReason::kStop);
}

// The fifth token would end the stream: it is another one while it may not, and itself right
// behind.
TEST_P(StreamEndTest, WhatEndsIsImpossibleBeforeMinTokens) {
  const auto prompt = counting(0, 20);
  const auto tokens = FakeAgent::expected_tokens(prompt, 30, kEndVocab);
  for (const bool by_stop_id : {false, true}) {
    for (const int num_resumed : {0, 3}) {
      for (int min_tokens = 0; min_tokens < 12; ++min_tokens) {
        SCOPED_TRACE(min_tokens);
        SchedulerOptions options = small_options();
        if (!by_stop_id) options.eos_ids = {7, tokens[4]};
        auto d = driver(options);
        auto made = sequence(1, prompt, 14);
        if (by_stop_id) made->params.stop_token_ids = {tokens[4], 7};
        made->params.min_tokens = min_tokens;
        made->num_resumed = num_resumed;
        const auto checker = std::make_shared<TokenStops>(std::vector<TokenId>{});
        made->stops = checker;
        const auto key = d.add(std::move(made));
        const auto other = d.generate(2, counting(400, 3), 20);
        d.run();
        auto expected = testing::first_of(tokens, 5);
        if (4 + num_resumed < min_tokens) {
          expected[4] = (tokens[4] + 1) % kEndVocab;
          auto longer = prompt;
          longer.insert(longer.end(), expected.begin(), expected.end());
          const auto rest = FakeAgent::expected_tokens(longer, 9, kEndVocab);
          expected.insert(expected.end(), rest.begin(), rest.end());
          EXPECT_EQ(d.outcome(key).finish, FinishReason::kLength);
        } else {
          EXPECT_EQ(d.outcome(key).finish, FinishReason::kStop);
        }
        EXPECT_EQ(d.outcome(key).tokens, expected);
        EXPECT_EQ(d.outcome(other).tokens,
                  FakeAgent::expected_tokens(counting(400, 3), 20, kEndVocab));
        for (std::size_t i = 0; i < checker->asked.size(); ++i) {
          EXPECT_EQ(checker->asked[i].second, static_cast<int>(i) + 1 + num_resumed >= min_tokens)
              << i;
        }
        if (GetParam()) {
          EXPECT_GT(d.num_steps_ahead(), 0);
        }
      }
    }
  }
}

// A request's own bias holds before and behind min_tokens.
TEST_P(StreamEndTest, TheBiasOfTheRequestComesBackAfterMinTokens) {
  const auto prompt = counting(0, 20);
  const auto tokens = FakeAgent::expected_tokens(prompt, 3, kEndVocab);
  auto bias = std::make_shared<LogitBias>();
  bias->ids = {tokens[0]};
  bias->values = {-std::numeric_limits<float>::infinity()};
  auto d = driver();
  auto made = sequence(1, prompt, 8);
  made->params.logit_bias = bias;
  made->params.min_tokens = 1;
  made->params.stop_token_ids = {(tokens[0] + 1) % kEndVocab};
  const auto key = d.add(std::move(made));
  d.run();
  EXPECT_EQ(d.outcome(key).tokens[0], (tokens[0] + 2) % kEndVocab);
  d.add(sequence(7, counting(90, 3), 1));  // an agent lets go of it with the next plan
  d.run();
  EXPECT_EQ(bias.use_count(), 1);
  auto again = sequence(2, prompt, 8);
  again->params.logit_bias = bias;
  again->params.min_tokens = 1;
  again->params.stop_token_ids = {(tokens[0] + 1) % kEndVocab};
  again->num_resumed = 1;
  const auto resumed = d.add(std::move(again));
  d.run();
  EXPECT_EQ(d.outcome(resumed).tokens,
            (std::vector<TokenId>{static_cast<TokenId>((tokens[0] + 1) % kEndVocab)}));
}

// Fourteen blocks: streams that grow to five each preempt one another.
TEST_P(StreamEndTest, PreemptedStreamsKeepTheirCheckersAndMinTokens) {
  SchedulerOptions options = small_options();
  options.context_length = 200;
  auto d = driver(options, 14);
  std::vector<StreamKey> keys;
  std::vector<std::shared_ptr<TokenStops>> checkers;
  std::vector<std::vector<TokenId>> expected;
  for (StreamId id = 0; id < 5; ++id) {
    const auto prompt = counting(static_cast<int>(id) * 100, 10);
    expected.push_back(FakeAgent::expected_tokens(prompt, 60, kEndVocab));
    auto made = sequence(id, prompt, 60);
    checkers.push_back(std::make_shared<TokenStops>(
        std::vector<TokenId>{expected.back()[3], expected.back()[55]}));
    made->stops = checkers.back();
    made->params.min_tokens = 50;
    made->params.stop_token_ids = {kEndVocab - 1};
    made->wants_notices = id % 2 == 0;
    keys.push_back(d.add(std::move(made)));
  }
  d.run();
  EXPECT_GT(d.scheduler().counters().num_preemptions, 0);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    EXPECT_EQ(d.outcome(keys[i]).tokens, testing::first_of(expected[i], 56));
    EXPECT_EQ(checkers[i]->tokens(), testing::first_of(expected[i], 56));
  }
  // Preempted, resumed, in turns, of those that asked, and all have been resumed.
  ASSERT_FALSE(d.notices().empty());
  std::map<StreamId, bool> is_out;
  for (const auto& [key, kind, num_tokens] : d.notices()) {
    EXPECT_EQ(key.stream % 2, 0);
    EXPECT_EQ(kind == StreamNotice::Kind::kPreempted, !is_out[key.stream]);
    is_out[key.stream] = kind == StreamNotice::Kind::kPreempted;
  }
  for (const auto& [stream, out] : is_out) EXPECT_FALSE(out) << stream;
}

TEST(WaitingOrder, IsTheOrderOfAdmission) {
  SchedulerOptions options = small_options();
  options.batch.max_sequences = 1;
  SchedulerDriver d(testing::small_agent(), options);
  for (StreamId id = 0; id < 9; ++id) {
    d.generate(id, counting(static_cast<int>(id) * 50, 20), 3, id < 5 ? 1 : id < 7 ? 2 : 3);
  }
  const auto order = d.scheduler().waiting_order();
  EXPECT_EQ(order.size(), 9U);
  std::vector<StreamKey> admitted;
  while (d.step()) {
    for (const auto& one : d.last_plan().admitted) admitted.push_back(one.key);
  }
  ASSERT_EQ(admitted.size(), order.size());
  for (std::size_t i = 0; i < order.size(); ++i) EXPECT_EQ(admitted[i], order[i]) << i;
  EXPECT_TRUE(d.scheduler().waiting_order().empty());
}

// Samples of one request are streams of one id.
TEST(Samples, EventsSayOfWhichSampleTheyAre) {
  Scheduler scheduler([] {
    SchedulerOptions options = small_options();
    options.num_blocks = 50;
    return options;
  }());
  FakeAgent agent(testing::small_agent(50));
  for (int sample = 0; sample < 2; ++sample) {
    auto made = std::make_unique<Sequence>();
    made->key = {1, 7, sample};
    made->tokens = counting(0, 4);
    made->num_prompt = 4;
    made->params.max_tokens = 2;
    scheduler.add(std::move(made));
  }
  std::set<int> samples;
  for (const auto& event : scheduler.commit(*agent.execute(scheduler.plan()))) {
    EXPECT_EQ(std::get<TokenEvent>(event.entry).sample, event.key.sample);
    samples.insert(event.key.sample);
  }
  EXPECT_EQ(samples.size(), 2U);
  (void)scheduler.plan();
  const auto failed = scheduler.abort({ErrorCode::kInternal, "no"});
  EXPECT_EQ(failed.size(), 2U);
  for (const auto& event : failed) {
    EXPECT_EQ(std::get<StreamError>(event.entry).sample, event.key.sample);
  }
}

TEST(ScoreTops, TheFirstTokenOfAnEmptyPromptHasOnlyItself) {
  Scheduler scheduler([] {
    SchedulerOptions options = small_options();
    options.num_blocks = 50;
    return options;
  }());
  for (const int num_top : {0, 3}) {
    auto made = std::make_unique<Sequence>();
    made->key = {1, num_top};
    made->kind = RequestKind::kScore;
    made->tokens = {42};
    made->params.top_logprobs = num_top;
    const auto events = scheduler.add(std::move(made));
    ASSERT_EQ(events.size(), 1U);
    const auto& entry = std::get<TokenEvent>(events[0].entry);
    EXPECT_EQ(entry.top_logprobs.has_value(), num_top > 0);
    if (num_top > 0) {
      EXPECT_EQ(*entry.top_logprobs, (std::vector<TokenLogprob>{{42, 0.0F}}));
    }
  }
}

}  // namespace
}  // namespace lmtp::scheduler
