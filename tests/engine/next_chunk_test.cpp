// A program's next chunk, of which the engine knows when it came and when the last one ended.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "counting.h"
#include "fake_agent.h"
#include "lmtp/engine/engine.h"
#include "recording_sink.h"

namespace lmtp::engine {
namespace {

using testing::counting;
using testing::FakeAgent;
using testing::RecordingSink;

constexpr int kChunkVocab = 1000;
constexpr int kChunk = 4;  // tokens
constexpr ConnectionId kProgram = 1;
constexpr ConnectionId kLongConnection = 2;
constexpr int kOthers = 4;

// With an agent that runs ahead, and with one that does not.
class NextChunk : public ::testing::TestWithParam<bool> {
 protected:
  void submit(ConnectionId connection, StreamId id, std::vector<TokenId> prompt, int max_tokens,
              std::chrono::steady_clock::duration later) {
    Request request;
    request.key = {connection, id};
    request.arrival += later;
    request.sink = sinks_.at(connection);
    request.prompt = std::move(prompt);
    request.params.max_tokens = max_tokens;
    EXPECT_TRUE(engine_->instance().submit(std::move(request)));
  }

  // In the order in which they began to run, where two run at a time: a long one, a chunk, others
  // that came before its end, and the next chunk, which came so long after that.
  std::vector<StreamKey> order_where_next_comes(std::chrono::steady_clock::duration later) {
    const std::vector<TokenId> prompt = counting(0, 20);
    std::vector<TokenId> next = FakeAgent::expected_tokens(prompt, kChunk, kChunkVocab);
    next.insert(next.begin(), prompt.begin(), prompt.end());
    next.push_back(7);
    std::vector<StreamKey> order;
    testing::FakeAgentOptions agent;
    agent.vocab_size = kChunkVocab;
    agent.num_blocks = 256;
    agent.runs_ahead = GetParam();
    std::promise<void> go;  // both are there
    agent.before_step = [begun = go.get_future().share()](const auto&) -> Result<void> {
      begun.wait();
      return {};
    };
    agent.on_step = [&](const scheduler::StepPlan& plan, const scheduler::SlotTable& slots) {
      for (const scheduler::PlanRow& row : plan.rows) {
        const StreamKey key = slots.at(row.slot).key;
        if (std::ranges::find(order, key) != order.end()) continue;
        order.push_back(key);
        if (order.size() == 2) {
          for (int i = 0; i < kOthers; ++i) {
            submit(10 + static_cast<ConnectionId>(i), 1, counting(100 * i + 200, 8), 12, {});
          }
        }
        if (order.size() == 3) submit(kProgram, 2, next, kChunk, later);
      }
    };
    EngineOptions options;
    options.batch.max_sequences = 2;
    options.debug.check_invariants = true;
    engine_ = std::make_unique<Engine>(
        testing::make_fake_agent(agent),
        ModelLimits{.vocab_size = kChunkVocab, .context_length = 512, .eos_ids = {}}, options);
    submit(kLongConnection, 1, counting(900, 8), 200, {});
    submit(kProgram, 1, prompt, kChunk, {});
    go.set_value();
    EXPECT_TRUE(sinks_.at(kProgram)->wait_done(2).done);
    for (int i = 0; i < kOthers; ++i) {
      EXPECT_TRUE(sinks_.at(10 + static_cast<ConnectionId>(i))->wait_done(1).done);
    }
    engine_.reset();
    return order;
  }

  std::map<ConnectionId, std::shared_ptr<RecordingSink>> sinks_ = [] {
    std::map<ConnectionId, std::shared_ptr<RecordingSink>> sinks;
    for (const ConnectionId connection : {1, 2, 10, 11, 12, 13}) {
      sinks[connection] = std::make_shared<RecordingSink>();
    }
    return sinks;
  }();
  std::unique_ptr<Engine> engine_;
};

INSTANTIATE_TEST_SUITE_P(Agents, NextChunk, ::testing::Bool(),
                         [](const auto& which) { return which.param ? "Ahead" : "StepByStep"; });

TEST_P(NextChunk, ThatComesAtOnceIsNotPutBehindOthers) {
  const auto order = order_where_next_comes(-std::chrono::hours(1));
  ASSERT_EQ(order.size(), 2U + kOthers + 1);
  EXPECT_EQ(order[3], (StreamKey{kProgram, 2})) << "but for the one that took its slot";
}

TEST_P(NextChunk, ThatComesLateIs) {
  const auto order = order_where_next_comes(std::chrono::hours(1));
  ASSERT_EQ(order.size(), 2U + kOthers + 1);
  EXPECT_EQ(order.back(), (StreamKey{kProgram, 2}));
}

}  // namespace
}  // namespace lmtp::engine
