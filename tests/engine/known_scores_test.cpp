// SCOREs that the score cache answers, many at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "counting.h"
#include "fake_agent.h"
#include "lmtp/engine/engine.h"

namespace lmtp::engine {
namespace {

constexpr int kKnownVocab = 1000;

// How much is delivered at a time, and how many streams have ended.
class SizesOfDeliveries : public EventSink {
 public:
  void deliver(std::span<StreamEvent> events) override {
    const std::lock_guard lock(mutex_);
    largest_ = std::max(largest_, events.size());
    for (const StreamEvent& event : events) {
      const auto* token = std::get_if<TokenEvent>(&event);
      num_told_ += token != nullptr && token->num_cached >= 0 ? 1 : 0;
      num_ended_ += token != nullptr && token->finish_reason != FinishReason::kNone ? 1 : 0;
    }
    changed_.notify_all();
  }
  bool wait_ended(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(1), [&] { return num_ended_ >= count; });
  }
  // Streams that were told what the prefix cache had.
  int num_told() {
    const std::lock_guard lock(mutex_);
    return num_told_;
  }
  std::size_t largest() {
    const std::lock_guard lock(mutex_);
    return largest_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t largest_ = 0;
  int num_ended_ = 0;
  int num_told_ = 0;
};

// A client that reads keeps up with it, and the steps of others go on in between.
TEST(KnownScores, ABurstComesInParts) {
  constexpr int kBurst = 100;
  const auto sink = std::make_shared<SizesOfDeliveries>();
  std::unique_ptr<Engine> engine;
  const auto submit = [&](RequestKind kind, StreamId id, std::vector<TokenId> prompt,
                          std::vector<TokenId> scored) {
    Request request;
    request.key = {1, id};
    request.kind = kind;
    request.sink = sink;
    request.prompt = std::move(prompt);
    request.scored = std::move(scored);
    request.params.max_tokens = 4;
    request.params.top_logprobs = 0;
    EXPECT_TRUE(engine->instance().submit(std::move(request)));
  };
  const std::vector<TokenId> text = testing::counting(1, 500);
  bool has_burst = false;  // of the engine's thread
  testing::FakeAgentOptions agent;
  agent.vocab_size = kKnownVocab;
  agent.num_blocks = 256;
  agent.on_step = [&](const scheduler::StepPlan& plan, const scheduler::SlotTable& slots) {
    if (slots.at(plan.rows.front().slot).key.stream != 2 || std::exchange(has_burst, true)) return;
    for (StreamId id = 10; id < 10 + kBurst; ++id) submit(RequestKind::kScore, id, {0}, text);
  };
  EngineOptions options;
  options.score_cache_bytes = 1 << 20;
  options.debug.check_invariants = true;
  engine = std::make_unique<Engine>(
      testing::make_fake_agent(agent),
      ModelLimits{.vocab_size = kKnownVocab, .context_length = 512, .eos_ids = {}}, options);
  submit(RequestKind::kScore, 1, {0}, text);
  ASSERT_TRUE(sink->wait_ended(1));
  submit(RequestKind::kGenerate, 2, {7}, {});
  ASSERT_TRUE(sink->wait_ended(2 + kBurst));
  EXPECT_EQ(sink->num_told(), 2) << "nothing was looked up for the others";
  const EngineStats stats = engine->stats();
  engine.reset();
  EXPECT_EQ(stats.num_scored_tokens, std::int64_t{500} * (1 + kBurst));
  EXPECT_EQ(stats.num_cached_scores, std::int64_t{500} * kBurst);
  EXPECT_LE(sink->largest(), 10'000U) << "those of a drain, and of a commit";
}

}  // namespace
}  // namespace lmtp::engine
