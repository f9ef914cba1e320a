// Streams whose tokens depend on a MaskSource, in an engine with an agent that runs ahead and with
// one that does not.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "counting.h"
#include "eventually.h"
#include "fake_agent.h"
#include "lmtp/engine/engine.h"
#include "recording_sink.h"

namespace lmtp::engine {
namespace {

using testing::counting;
using testing::FakeAgent;
using testing::RecordingSink;

constexpr int kMasksVocab = 1000;
constexpr int kTokens = 12;

bool is_allowed(TokenId token, std::size_t num_before) {
  return token % 7 == static_cast<TokenId>(num_before % 7);
}

// Allows is_allowed(). While it is closed, compute() waits.
class Source : public MaskSource {
 public:
  Result<void> compute(std::span<const TokenId> before, std::span<const TokenId> generated,
                       NextTokens& next) const override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !closed_; });
    std::this_thread::sleep_for(delay);
    const std::size_t num_tokens = before.size() + generated.size();
    if (fails_at > 0 && num_tokens >= fails_at) return Error{ErrorCode::kInvalid, "no rule"};
    for (TokenId token = 0; token < kMasksVocab; ++token) {
      if (!is_allowed(token, num_tokens)) continue;
      next.words[static_cast<std::size_t>(token) / 32] |= 1U << (token % 32);
    }
    return {};
  }
  std::shared_ptr<const MaskSource> forked() const override { return nullptr; }
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  void open() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = false;
    }
    changed_.notify_all();
  }

  std::size_t fails_at = 0;  // tokens; 0: never
  std::chrono::milliseconds delay{0};

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool closed_ = false;
};

// Lets only `text` follow, over and over; where it does not force it is drawn token by token.
class Forcing : public MaskSource {
 public:
  explicit Forcing(bool forces) : forces_(forces) {}

  Result<void> compute(std::span<const TokenId> /*before*/, std::span<const TokenId> generated,
                       NextTokens& next) const override {
    const auto at = [&](std::size_t position) { return static_cast<TokenId>(position % 10 * 3); };
    const std::size_t position = generated.size();
    const TokenId token = at(position);
    next.words[static_cast<std::size_t>(token) / 32] |= 1U << (token % 32);
    if (position % 10 == 9) return {};
    for (std::size_t i = position + 1; forces_ && i % 10 < 9; ++i) next.forced.push_back(at(i));
    return {};
  }
  std::shared_ptr<const MaskSource> forked() const override {
    return std::make_shared<Forcing>(forces_);
  }

 private:
  const bool forces_;
};

class EngineMasksTest : public ::testing::TestWithParam<bool> {
 protected:
  static std::unique_ptr<Engine> make_engine(int mask_wait_ms) {
    testing::FakeAgentOptions agent;
    agent.vocab_size = kMasksVocab;
    agent.num_blocks = 128;
    agent.runs_ahead = GetParam();
    EngineOptions options;
    options.debug.check_invariants = true;
    options.mask_wait_ms = mask_wait_ms;
    const ModelLimits limits{.vocab_size = kMasksVocab, .context_length = 512, .eos_ids = {}};
    return std::make_unique<Engine>(testing::make_fake_agent(agent), limits, options);
  }

  void submit(Engine& engine, StreamId id, std::shared_ptr<const MaskSource> source,
              int first_token = 0, int max_tokens = kTokens) {
    Request request;
    request.key = {1, id};
    request.sink = sink_;
    request.prompt = counting(first_token, 20);
    request.params.max_tokens = max_tokens;
    request.mask_source = std::move(source);
    EXPECT_TRUE(engine.instance().submit(std::move(request)).ok());
  }

  static std::vector<TokenId> free_tokens() {
    return FakeAgent::expected_tokens(counting(0, 20), kTokens, kMasksVocab);
  }

  static void expect_masked(const std::vector<TokenId>& tokens, std::size_t count = kTokens) {
    ASSERT_EQ(tokens.size(), count);
    for (std::size_t i = 0; i < tokens.size(); ++i) EXPECT_TRUE(is_allowed(tokens[i], 20 + i)) << i;
  }

  const std::shared_ptr<RecordingSink> sink_ = std::make_shared<RecordingSink>();
};

INSTANTIATE_TEST_SUITE_P(Agents, EngineMasksTest, ::testing::Bool());

constexpr int kLong = 60'000;

TEST_P(EngineMasksTest, DecideWhatIsDrawnBesideOthers) {
  const auto engine = make_engine(kLong);
  submit(*engine, 1, std::make_shared<Source>());
  submit(*engine, 2, nullptr);
  submit(*engine, 3, std::make_shared<Source>());
  expect_masked(sink_->wait_done(1).tokens);
  EXPECT_EQ(sink_->wait_done(2).tokens, free_tokens());
  expect_masked(sink_->wait_done(3).tokens);
  const std::int64_t num_ahead = engine->stats().num_steps_ahead;
  EXPECT_EQ(num_ahead > 0, GetParam()) << "the forward pass does not wait for masks";
}

TEST_P(EngineMasksTest, StepsOfFreeStreamsWaitForNone) {
  const auto engine = make_engine(kLong);
  const auto expect_counts = [&](std::int64_t num_masks, std::int64_t mask_wait_us) {
    const EngineStats stats = engine->stats();
    EXPECT_EQ(stats.num_masks, num_masks);
    EXPECT_EQ(stats.num_late_masks, 0);
    EXPECT_EQ(stats.mask_wait_us, mask_wait_us);
  };
  submit(*engine, 1, nullptr, 0, 400);
  EXPECT_EQ(sink_->wait_done(1).tokens.size(), 400U);
  expect_counts(0, 0);
  const auto source = std::make_shared<Source>();
  source->delay = std::chrono::milliseconds(2);
  submit(*engine, 2, source);
  expect_masked(sink_->wait_done(2).tokens);
  const std::int64_t mask_wait_us = engine->stats().mask_wait_us;
  EXPECT_GT(mask_wait_us, 0);
  submit(*engine, 3, nullptr, 5, 400);
  EXPECT_EQ(sink_->wait_done(3).tokens.size(), 400U);
  expect_counts(kTokens, mask_wait_us);
}

// Where the others go on, a step behind its last one could be begun before that one is chosen.
TEST_P(EngineMasksTest, HoldForAStreamsLastTokenToo) {
  const auto engine = make_engine(kLong);
  submit(*engine, 1, std::make_shared<Source>(), 0, 5);
  submit(*engine, 2, nullptr);
  expect_masked(sink_->wait_done(1).tokens, 5);
  EXPECT_EQ(sink_->wait_done(2).tokens, free_tokens());
}

// A mask that is late is there for the row that is planned again.
TEST_P(EngineMasksTest, ThatTakeLongerThanIsWaitedForArrive) {
  const auto engine = make_engine(1);
  const auto source = std::make_shared<Source>();
  source->close();
  submit(*engine, 1, source, 0, 5);
  submit(*engine, 2, nullptr, 0, 400);
  EXPECT_TRUE(testing::eventually([&] { return engine->stats().num_late_masks > 0; }));
  source->open();
  expect_masked(sink_->wait_done(1).tokens, 5);
  EXPECT_EQ(sink_->wait_done(2).tokens.size(), 400U);
  const EngineStats stats = engine->stats();
  EXPECT_GE(stats.num_late_masks, 1);
  EXPECT_GE(stats.num_masks, stats.num_late_masks + 5) << "the late ones were there in the end";
}

// No stream waits for another's mask, and the late one gets what it would have got.
TEST_P(EngineMasksTest, AreWaitedForByTheirStreamAlone) {
  const auto in_time = make_engine(kLong);
  submit(*in_time, 1, std::make_shared<Source>(), 5);
  const std::vector<TokenId> expected = sink_->wait_done(1).tokens;
  expect_masked(expected);

  const auto engine = make_engine(0);
  const auto source = std::make_shared<Source>();
  source->close();
  submit(*engine, 4, nullptr);
  submit(*engine, 5, source, 5);
  submit(*engine, 6, nullptr);
  for (const StreamId id : {4, 6}) EXPECT_EQ(sink_->wait_done(id).tokens, free_tokens());
  source->open();
  EXPECT_EQ(sink_->wait_done(5).tokens, expected);
}

TEST_P(EngineMasksTest, ThatFailEndTheirStream) {
  const auto engine = make_engine(kLong);
  const auto source = std::make_shared<Source>();
  source->fails_at = 25;
  submit(*engine, 1, source);
  submit(*engine, 2, nullptr);
  const auto failed = sink_->wait_done(1);
  EXPECT_EQ(failed.error, "no rule");
  EXPECT_EQ(failed.tokens.size(), 5U);
  EXPECT_EQ(sink_->wait_done(2).tokens, free_tokens());
}

TEST_P(EngineMasksTest, PutTokensBehindTheOneThatIsDrawn) {
  constexpr int kLength = 43;
  const auto run = [&](StreamId id, bool forces) {
    const auto engine = make_engine(kLong);
    submit(*engine, id, std::make_shared<Forcing>(forces), 0, kLength);
    submit(*engine, id + 1, nullptr, 0, 5);
    EXPECT_EQ(sink_->wait_done(id).tokens.size(), static_cast<std::size_t>(kLength));
    EXPECT_EQ(sink_->wait_done(id + 1).tokens.size(), 5U);
    return engine->stats().num_steps;
  };
  const std::int64_t num_steps_drawn = run(1, false);
  const std::int64_t num_steps_forced = run(3, true);
  EXPECT_EQ(sink_->wait_done(3).tokens, sink_->wait_done(1).tokens);
  EXPECT_EQ(sink_->wait_done(3).logprobs, sink_->wait_done(1).logprobs);
  EXPECT_EQ(sink_->wait_done(1).num_forced, 0);
  EXPECT_EQ(sink_->wait_done(3).num_forced, 4 * 8 + 1) << "the last token is drawn";
  EXPECT_GE(num_steps_drawn, kLength);
  // A run of ten: one is drawn, eight are put behind it, and the tenth is drawn behind those. Where
  // the agent runs ahead, a step that was begun behind the first counts, too; and the second stream
  // may come five steps after the first.
  EXPECT_LE(num_steps_forced, GetParam() ? 22 : 17);
}

}  // namespace
}  // namespace lmtp::engine
