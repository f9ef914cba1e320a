// What a step costs where nothing begins and nothing ends, on the engine's thread: no allocation
// for a token, a block that becomes full, or a delivery.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <future>
#include <iterator>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "counted_allocations.h"
#include "fake_agent.h"
#include "lmtp/engine/engine.h"
#include "temp_folder.h"
#include "watched_agent.h"

namespace lmtp::engine {
namespace {

using testing::FakeAgent;
using testing::num_allocations;

constexpr int kVocab = 1000;
constexpr int kNumStreams = 64;
constexpr int kNumConnections = 8;
constexpr int kNumTokens = 400;
constexpr std::int64_t kScoreCacheBytes = 500'000;  // full before the steps that are looked at
// Steps with all streams before what is kept for the next one has its size, and those looked at.
constexpr std::size_t kWarmUp = 100;
constexpr std::size_t kCounted = 256;  // 16 blocks of each stream
// Of the steps, what the engine's thread allocated outside of the agent.
class Allocations : public testing::AgentWatcher {
 public:
  Allocations() { steps_.reserve(std::size_t{4} * kNumTokens); }

  struct Step {
    int num_rows = 0;
    std::int64_t count = 0;
  };

  void enter() override { outside_ += num_allocations - at_leave_; }
  void leave() override { at_leave_ = num_allocations; }
  void collected(int num_rows) override {
    if (steps_.size() < steps_.capacity()) steps_.push_back({num_rows, outside_});
    outside_ = 0;
  }
  const std::vector<Step>& steps() const { return steps_; }

 private:
  std::int64_t outside_ = 0;
  std::int64_t at_leave_ = 0;
  std::vector<Step> steps_;
};

// Keeps what the last delivery brought, as a connection's mail does.
class TakingSink : public EventSink {
 public:
  explicit TakingSink(int num_streams) : num_open_(num_streams) {}

  void deliver(std::span<StreamEvent> events) override {
    const std::lock_guard lock(mutex_);
    taken_.clear();
    taken_.insert(taken_.end(), std::make_move_iterator(events.begin()),
                  std::make_move_iterator(events.end()));
    for (const StreamEvent& event : taken_) {
      const auto* token = std::get_if<TokenEvent>(&event);
      num_tokens_ += token != nullptr && token->top_logprobs->size() == 1 ? 1 : 0;
    }
    num_open_ -= static_cast<int>(std::ranges::count_if(taken_, is_last));
    if (num_open_ == 0) done_.set_value(num_tokens_);
  }
  int wait() { return done_.get_future().get(); }

 private:
  std::mutex mutex_;
  std::vector<StreamEvent> taken_;
  int num_tokens_ = 0;
  int num_open_;
  std::promise<int> done_;
};

// The steps in which all streams run.
std::vector<Allocations::Step> run(bool ahead, EngineOptions options = {},
                                   const KvLayout& layout = {}) {
  Allocations allocations;
  std::promise<void> go;  // all streams are there
  {
    testing::FakeAgentOptions agent;
    agent.vocab_size = kVocab;
    agent.num_blocks = layout.num_groups * kNumStreams * (kNumTokens / kBlockSize + 2);
    agent.kv_layout = layout;
    agent.runs_ahead = ahead;
    agent.before_step = [begun = go.get_future().share()](const auto&) -> Result<void> {
      begun.wait();
      return {};
    };
    options.score_cache_bytes = kScoreCacheBytes;
    const bool has_drafts = options.max_drafts > 0;
    Engine engine(
        std::make_unique<testing::WatchedAgent>(testing::make_fake_agent(agent), allocations),
        {.vocab_size = kVocab, .context_length = 1024, .eos_ids = {}}, std::move(options));
    std::vector<std::shared_ptr<TakingSink>> sinks(kNumConnections);
    for (auto& sink : sinks) sink = std::make_shared<TakingSink>(kNumStreams / kNumConnections);
    for (int i = 0; i < kNumStreams; ++i) {
      const int connection = i % kNumConnections;
      Request request;
      request.key = {static_cast<ConnectionId>(connection + 1), i};
      request.sink = sinks[static_cast<std::size_t>(connection)];
      // Of several lengths, so that blocks become full in several steps.
      request.prompt.assign(static_cast<std::size_t>(i % 7 + 1), i);
      request.params.max_tokens = kNumTokens;
      EXPECT_TRUE(engine.instance().submit(std::move(request)));
    }
    go.set_value();
    for (const auto& sink : sinks) {
      EXPECT_EQ(sink->wait(), kNumStreams / kNumConnections * kNumTokens);
    }
    EXPECT_EQ(engine.stats().num_refused_drafts > 1000, has_drafts);
  }
  std::vector<Allocations::Step> full;
  std::ranges::copy_if(allocations.steps(), std::back_inserter(full),
                       [](const auto& step) { return step.num_rows == kNumStreams; });
  return full;
}

class SteadyState : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Ahead, SteadyState, ::testing::Bool());

TEST_P(SteadyState, AStepAllocatesNothingForTokensBlocksAndDeliveries) {
  const std::vector<Allocations::Step> steps = run(GetParam());
  ASSERT_GE(steps.size(), kWarmUp + kCounted);
  std::int64_t most = 0;
  for (std::size_t i = kWarmUp; i < kWarmUp + kCounted; ++i) most = std::max(most, steps[i].count);
  EXPECT_EQ(most, 0);
}

// Blocks are added to each group, and windows pass some; group 0 has layers, or none.
TEST_P(SteadyState, NorIsThereOneInGroupsOfLayers) {
  for (const bool has_stubs : {false, true}) {
    const KvLayout layout =
        testing::windowed_layout(std::array{16, 40}, BatchLimits{}.max_tokens, has_stubs);
    const std::vector<Allocations::Step> steps = run(GetParam(), {}, layout);
    ASSERT_GE(steps.size(), kWarmUp + kCounted);
    for (std::size_t i = kWarmUp; i < kWarmUp + kCounted; ++i) ASSERT_EQ(steps[i].count, 0) << i;
  }
}

TEST_P(SteadyState, NorIsThereOneForWhatIsTraced) {
  const testing::TempFolder folder;
  EngineOptions options;
  const auto trace = trace::Trace::open({.path = folder.path() + "/trace.json"});
  ASSERT_TRUE(trace);
  options.trace = *trace;
  const std::vector<Allocations::Step> steps = run(GetParam(), options);
  ASSERT_GE(steps.size(), kWarmUp + kCounted);
  for (std::size_t i = kWarmUp; i < kWarmUp + kCounted; ++i) ASSERT_EQ(steps[i].count, 0);
  EXPECT_TRUE((*trace)->is_on());
}

// But where a step gives more tokens than any before it.
TEST(SteadyStateTest, NorIsThereOneForDrafts) {
  EngineOptions options;
  options.max_drafts = 4;
  options.debug.eager_drafts = true;
  const std::vector<Allocations::Step> steps = run(false, options);
  ASSERT_GE(steps.size(), kWarmUp + kCounted);
  std::int64_t sum = 0;
  for (std::size_t i = kWarmUp; i < kWarmUp + kCounted; ++i) sum += steps[i].count;
  EXPECT_LE(sum, 8);
}

// That the counter counts at all, and on the engine's thread.
TEST_P(SteadyState, TheFirstStepsAllocate) {
  const std::vector<Allocations::Step> steps = run(GetParam());
  ASSERT_FALSE(steps.empty());
  EXPECT_TRUE(std::ranges::any_of(steps, [](const auto& step) { return step.count > 0; }));
}

}  // namespace
}  // namespace lmtp::engine
