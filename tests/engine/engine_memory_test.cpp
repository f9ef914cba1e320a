// Memory that runs out on the engine's thread, at each place in turn: whatever happens, every
// stream gets its end once, none goes on with a gap, and the engine serves on.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "failing_allocations.h"
#include "fake_agent.h"
#include "lmtp/aici/instance.h"
#include "lmtp/engine/engine.h"
#include "lmtp/request/account.h"
#include "lmtp/request/caller.h"
#include "outbox.h"
#include "scripted_runtime.h"

namespace lmtp::engine {
namespace {

using testing::allocations_left;
using testing::FakeAgent;
using testing::PostingSink;
using testing::RecordingSink;

constexpr int kVocab = 1000;

struct Sent {
  std::shared_ptr<PostingSink> sink;
  StreamId id = 0;
  std::vector<TokenId> prompt;
  int max_tokens = 0;
};

Request request_of(const Sent& sent, ConnectionId connection) {
  Request request;
  request.key = {connection, sent.id};
  request.sink = sent.sink;
  request.prompt = sent.prompt;
  request.params.max_tokens = sent.max_tokens;
  return request;
}

void expect_whole_or_failed(const Sent& sent, int failing) {
  const RecordingSink::Stream stream = sent.sink->wait_done(sent.id);
  EXPECT_EQ(stream.num_ends, 1) << failing;
  EXPECT_FALSE(stream.event_after_end) << failing;
  if (!stream.error.empty()) return;
  EXPECT_EQ(stream.tokens, FakeAgent::expected_tokens(sent.prompt, sent.max_tokens, kVocab))
      << failing;
}

// Each request is counted once, by how it has ended.
std::int64_t num_counted(const Engine& engine) {
  const EngineStats stats = engine.stats();
  std::uint64_t sum = 0;
  for (const auto& finished : stats.metrics.num_finished) sum += finished.value();
  for (const auto& failed : stats.metrics.num_failed) sum += failed.value();
  return static_cast<std::int64_t>(sum);
}

// Whether there was an allocation that could fail.
bool run_with_failing(int failing, bool ahead) {
  const auto first = std::make_shared<PostingSink>();
  const auto second = std::make_shared<PostingSink>();
  const std::vector<Sent> all = {{first, 1, {1, 2, 3}, 12},
                                 {first, 2, std::vector<TokenId>(40, 7), 4},
                                 {second, 1, {4, 5}, 12},
                                 {second, 2, {6, 6}, 3}};
  Engine* engine = nullptr;
  int num_steps = 0;
  bool failed = false;
  testing::FakeAgentOptions agent;
  agent.vocab_size = kVocab;
  agent.runs_ahead = ahead;
  agent.before_step = [&](const auto&) -> Result<void> {
    ++num_steps;
    if (num_steps == 2) {  // all that happens to streams happens within three steps
      for (const std::size_t late : {1, 3}) {
        EXPECT_TRUE(engine->instance().submit(request_of(all[late], late / 2 + 1)));
      }
      engine->instance().cancel({2, 1});
      allocations_left = failing;
    } else if (num_steps == 6) {
      failed = std::exchange(allocations_left, 0) == 0;
    }
    return {};
  };
  Engine running(testing::make_fake_agent(agent),
                 {.vocab_size = kVocab, .context_length = 256, .eos_ids = {}}, {});
  engine = &running;
  EXPECT_TRUE(running.instance().submit(request_of(all[0], 1)));
  EXPECT_TRUE(running.instance().submit(request_of(all[2], 2)));
  for (const Sent& sent : all) expect_whole_or_failed(sent, failing);
  for (const StreamId id : {9, 10}) {  // the first one may be the one that fails
    const Sent after = {std::make_shared<PostingSink>(), id, {8, 9}, 5};
    EXPECT_TRUE(running.instance().submit(request_of(after, 3)));
    expect_whole_or_failed(after, failing);
  }
  std::int64_t num_told = 0;
  for (const Sent& sent : all) {
    num_told += static_cast<std::int64_t>(sent.sink->wait_done(sent.id).tokens.size());
  }
  EXPECT_GE(running.stats().num_generated_tokens, num_told) << "counters begin anew: " << failing;
  running.stop(0);
  EXPECT_EQ(num_counted(running), 6) << failing;
  return failed || num_steps < 6;
}

TEST(EngineMemory, RunsOutAtAnyPlace) {
  for (const bool ahead : {false, true}) {
    int failing = 1;
    while (run_with_failing(failing, ahead) && failing < 1000) ++failing;
    EXPECT_GT(failing, 20);
    EXPECT_LT(failing, 1000);
  }
}

// Controllers that do as their scripts say. Their own memory does not run out.
class AmpleRuntime : public testing::ScriptedRuntime {
 public:
  AmpleRuntime() : ScriptedRuntime(kVocab, [](const std::string&) {}) {}
  void bind(const std::string& id, Sequence sequence) override {
    const Ample ample;
    ScriptedRuntime::bind(id, sequence);
  }
  void advance(Sequence id, aici::Report report, Done<Advance> done) override {
    const Ample ample;
    ScriptedRuntime::advance(id, std::move(report), std::move(done));
  }
  void choose(Sequence id, std::vector<Sequence> group, Done<Choice> done) override {
    const Ample ample;
    ScriptedRuntime::choose(id, std::move(group), std::move(done));
  }
  void fork(Sequence parent, std::vector<Sequence> children) override {
    const Ample ample;
    ScriptedRuntime::fork(parent, std::move(children));
  }
  void free(Sequence id) override {
    const Ample ample;
    ScriptedRuntime::free(id);
  }

 private:
  struct Ample {
    Ample() = default;
    ~Ample() { allocations_left = left; }
    Ample(const Ample&) = delete;
    Ample& operator=(const Ample&) = delete;
    const int left = std::exchange(allocations_left, 0);
  };
};

class RuntimeWithoutMemory final : public AmpleRuntime {
 public:
  void discard(const std::string&) override { throw std::bad_alloc(); }
};

TEST(EngineMemory, ARequestGoesWhereItsControllerCannotBeDiscarded) {
  const auto runtime = std::make_shared<RuntimeWithoutMemory>();
  { const aici::Instance instance(runtime, "r1"); }
  EXPECT_EQ(runtime.use_count(), 1);
}

// Counts the streams that were told to begin, and to end.
class CountingSink : public EventSink {
 public:
  void deliver(std::span<StreamEvent> events) override {
    const auto posted = std::make_unique<int>(1);
    num_begun += num_forked(events);
    num_done += num_ended(events);
  }
  std::atomic<int> num_begun = 1;
  std::atomic<int> num_done = 0;
};

// A stream whose controller forks it, while memory runs out at one place: each stream that its
// client knows of has one end, and one place of its key, which is given back.
bool fork_with_failing(int failing) {
  const auto runtime = std::make_shared<AmpleRuntime>();
  const std::string any3 = R"([{"any":true},{"any":true},{"any":true}])";
  runtime->instantiate(
      {.request_id = "1",
       .prompt = {1, 2},
       .controller = "script",
       .arg = R"([{"any":true},{"fork":[)" + any3 + "," + any3 + "," + any3 + "]}]"},
      [](const auto& made) { EXPECT_TRUE(made.ok()); });
  const auto caller = std::make_shared<Caller>();
  AccountLimits limits;
  limits.max_streams = 3;
  caller->account = std::make_shared<Account>("ann", 1, limits);
  const auto sink = std::make_shared<CountingSink>();
  int num_steps = 0;
  bool failed = false;
  testing::FakeAgentOptions agent;
  agent.vocab_size = kVocab;
  agent.before_step = [&](const auto&) -> Result<void> {
    ++num_steps;
    if (num_steps == 1) allocations_left = failing;
    if (num_steps == 3) failed = std::exchange(allocations_left, 0) == 0;
    return {};
  };
  Engine running(testing::make_fake_agent(agent),
                 {.vocab_size = kVocab, .context_length = 256, .eos_ids = {}}, {});
  Request request;
  request.key = {1, 1};
  request.sink = sink;
  request.caller = caller;
  request.prompt = {1, 2};
  request.params.max_tokens = 20;
  request.controller = std::make_shared<aici::Instance>(runtime, "1");
  EXPECT_TRUE(caller->account->begin(0).ok());
  EXPECT_TRUE(running.instance().submit(std::move(request)).ok());
  running.stop(60'000);
  EXPECT_EQ(sink->num_done, sink->num_begun) << failing;
  EXPECT_EQ(num_counted(running), sink->num_begun) << failing;
  caller->account->ended(sink->num_done);  // as a connection does, by what it is told
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(caller->account->begin(0).ok()) << failing;
  return failed || num_steps < 3;
}

TEST(EngineMemory, RunsOutWhereAControllerForks) {
  int failing = 1;
  while (fork_with_failing(failing) && failing < 1000) ++failing;
  EXPECT_GT(failing, 20);
  EXPECT_LT(failing, 1000);
}

// Its first delivery fails, and then one allocation more.
class FailingTwice : public RecordingSink {
 public:
  explicit FailingTwice(int failing) : failing_(failing) {}
  void deliver(std::span<StreamEvent> events) override {
    const int left = std::exchange(allocations_left, 0);
    if (failing_ > 0) {
      allocations_left = std::exchange(failing_, 0);
      throw std::bad_alloc();
    }
    RecordingSink::deliver(events);
    allocations_left = left;
  }

 private:
  int failing_;
};

TEST(EngineMemory, RunsOutAgainWhereEndsWereLost) {
  bool has_failed = true;
  int failing = 0;
  while (has_failed && failing < 100) {
    ++failing;
    Outbox outbox;
    const auto sink = std::make_shared<FailingTwice>(failing);
    for (StreamId id = 1; id <= 3; ++id) {
      outbox.add(1, sink, TokenEvent{.stream_id = id, .finish_reason = FinishReason::kLength});
    }
    for (int round = 0; round < 3; ++round) {
      try {
        outbox.deliver();
      } catch (const std::bad_alloc&) {
        EXPECT_FALSE(outbox.empty()) << failing;
      }
    }
    has_failed = std::exchange(allocations_left, 0) == 0;
    for (StreamId id = 1; id <= 3; ++id) EXPECT_EQ(sink->wait_done(id).num_ends, 1) << failing;
  }
  EXPECT_GT(failing, 3);
}

}  // namespace
}  // namespace lmtp::engine
