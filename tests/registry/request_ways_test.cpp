// A request finds its model, and a cancel its request, wherever they are when things change.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "registry_fixture.h"

namespace lmtp::registry {
namespace {

struct RequestWays : RegistryTest {
  Request make(StreamId id, const std::string& model, std::vector<TokenId> prompt = {1, 2}) {
    Request request;
    request.key = {1, id};
    request.sink = sink;
    request.model = model;
    request.prompt = std::move(prompt);
    request.params.max_tokens = 2;
    return request;
  }
  std::shared_ptr<StreamCanceller> canceller_of(Submission submission) {
    EXPECT_TRUE(std::holds_alternative<std::shared_ptr<StreamCanceller>>(submission));
    return std::get<std::shared_ptr<StreamCanceller>>(std::move(submission));
  }
  // The device of the first engine is lost in its so manieth step from now on, once `go` is set.
  struct Loss {
    std::atomic<int> num_steps_left = 1;
    std::promise<void> in_step;
    std::promise<void> go;
    std::atomic<bool> lost = false;
  };
  void lose_device(Loss& loss) {
    before_step = [&loss](const auto&) -> Result<void> {
      if (--loss.num_steps_left != 0) return {};
      loss.in_step.set_value();
      loss.go.get_future().wait();
      loss.lost = true;
      return Error{ErrorCode::kInternal, "sticky"};
    };
    is_lost = [&loss] { return loss.lost.exchange(false); };
  }
  ModelStatus status_of_a() const { return *manager->status("a").value(); }
  // fetch() of "A" waits for `known`, everything else is found at once.
  void hold_alias(const std::shared_future<void>& known) {
    fetch = [this, known](const std::string& name, const auto&) {
      if (name == "A") known.wait();
      return find(name);
    };
  }
};

constexpr std::size_t kTokensIn15MiB = (std::size_t{15} << 20) / 2;

// Who reads or copies it ends the process: its pages may not be read meanwhile.
TEST_F(RequestWays, ARefusalDoesNotTakeTheTimeOfItsPrompt) {
  start();
  run(1, "a");
  Request request = make(2, "a", std::vector<TokenId>(kTokensIn15MiB, 1));
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::size_t num_bytes = request.prompt.size() * sizeof(TokenId);
  void* pages = request.prompt.data();
  ASSERT_NE(std::align(page, page, pages, num_bytes), nullptr);
  num_bytes -= num_bytes % page;
  ASSERT_EQ(mprotect(pages, num_bytes, PROT_NONE), 0);
  EXPECT_TRUE(std::holds_alternative<Refusal>(manager->submit(std::move(request))));
  ASSERT_EQ(mprotect(pages, num_bytes, PROT_READ | PROT_WRITE), 0);
  // What is refused is left as it was. NOLINTNEXTLINE(bugprone-use-after-move)
  EXPECT_EQ(request.prompt.size(), kTokensIn15MiB);
}

// What waits under another name of a model that runs is looked at before its route is touched.
TEST_F(RequestWays, WhatARunningModelCannotServeLeavesItsRouteAlone) {
  std::promise<void> known;
  hold_alias(known.get_future().share());
  start();
  run(1, "a");
  class Probe : public RecordingSink {
   public:
    explicit Probe(std::function<void()> use) : use_(std::move(use)) {}
    void deliver(std::span<StreamEvent> events) override {
      if (is_last(events.front())) {
        probe = std::async(std::launch::async, use_);
        was_free = probe.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
      }
      RecordingSink::deliver(events);
    }
    std::future<void> probe;
    std::atomic<bool> was_free = false;

   private:
    const std::function<void()> use_;
  };
  const auto probe = std::make_shared<Probe>([this] { EXPECT_EQ(run(7, "a").error, ""); });
  Request request = make(2, "A", std::vector<TokenId>(kTokensIn15MiB, 1));
  request.sink = probe;
  canceller_of(manager->submit(std::move(request)));
  known.set_value();
  EXPECT_NE(probe->wait_done(2).error.find("prompt: has"), std::string::npos);
  EXPECT_EQ(manager->refusals().count(ErrorCode::kTooLong), 1U);
  EXPECT_TRUE(probe->was_free);
}

TEST_F(RequestWays, CancelFindsAStreamWhereverItIs) {
  std::promise<void> known;
  hold_alias(known.get_future().share());
  gated = true;
  std::atomic<bool> hold = true;
  before_step = [&hold](const auto&) -> Result<void> {
    EXPECT_TRUE(eventually([&] { return !hold; }));
    return {};
  };
  start();
  const auto first = canceller_of(manager->submit(make(1, "a")));
  const auto loading = canceller_of(manager->submit(make(2, "a")));
  const auto handed = canceller_of(manager->submit(make(3, "a")));
  const auto alias = canceller_of(manager->submit(make(4, "A")));
  const auto alias_handed = canceller_of(manager->submit(make(5, "A")));
  loading->cancel({1, 2});
  loading->cancel({1, 2});
  EXPECT_EQ(sink->wait_done(2).error, "cancelled");
  EXPECT_EQ(sink->wait_done(2).num_ends, 1);
  alias->cancel({1, 4});
  EXPECT_EQ(sink->wait_done(4).error, "cancelled");
  known.set_value();
  EXPECT_TRUE(eventually([&] { return !manager->list().empty() && manager->limits_of("A"); }));
  open_gate();
  wait_for_state("a", ModelState::kReady);
  for (const auto& [canceller, id] : {std::pair{handed, 3}, std::pair{alias_handed, 5}}) {
    canceller->cancel({1, id});
  }
  hold = false;
  for (const StreamId id : {3, 5}) {
    EXPECT_EQ(sink->wait_done(id).error, "cancelled");
    EXPECT_EQ(sink->wait_done(id).num_ends, 1);
  }
  EXPECT_EQ(sink->wait_done(1).error, "");
  EXPECT_EQ(census->num_loads("/models/a"), 1);
}

TEST_F(RequestWays, AnotherNameOfAModelThatIsGoneBringsItBack) {
  std::promise<void> known;
  hold_alias(known.get_future().share());
  failing = true;
  start();
  const auto alias = canceller_of(manager->submit(make(1, "A")));
  EXPECT_TRUE(run(2, "a").model_failed);
  failing = false;
  known.set_value();
  EXPECT_EQ(sink->wait_done(1).error, "");
}

TEST_F(RequestWays, AModelThatNobodyWaitsForAnyMoreIsNotLoaded) {
  gated = true;
  start();
  submit(1, "a");
  EXPECT_TRUE(eventually([&] { return last_kv_bytes != 0; }));  // it has the turn
  const auto canceller = canceller_of(manager->submit(make(2, "b")));
  wait_for_state("b", ModelState::kLoading);
  EXPECT_TRUE(eventually(
      [&] { return manager->limits_of("b").has_value(); }));  // found: it waits for its turn
  canceller->cancel({1, 2});
  EXPECT_EQ(sink->wait_done(2).error, "cancelled");
  open_gate();
  EXPECT_EQ(sink->wait_done(1).error, "");
  EXPECT_EQ(state("b"), ModelState::kUnloaded);
  EXPECT_EQ(run(3, "b").error, "");
  EXPECT_EQ(census->num_loads("/models/b"), 1);
}

// The queue of an engine whose device is lost: what has not begun waits for the next one.
TEST_F(RequestWays, WhatALostEngineHadNotBegunIsServedByTheNext) {
  Loss loss;
  lose_device(loss);
  start();
  const auto first = canceller_of(manager->submit(make(1, "a")));
  loss.in_step.get_future().wait();
  const auto second = canceller_of(manager->submit(make(2, "a")));
  const auto third = canceller_of(manager->submit(make(3, "a")));
  third->cancel({1, 3});
  gated = true;
  loss.go.set_value();
  EXPECT_EQ(sink->wait_done(1).error, "the step failed: sticky");
  EXPECT_EQ(sink->wait_done(3).error, "cancelled");
  EXPECT_EQ(sink->wait_loading(2).loading_model, "a");
  wait_for_state("a", ModelState::kLoading);
  const auto fourth = canceller_of(manager->submit(make(4, "a")));
  const auto fifth = canceller_of(manager->submit(make(5, "a")));
  fifth->cancel({1, 5});
  EXPECT_EQ(sink->wait_done(5).error, "cancelled");
  open_gate();
  for (const StreamId id : {2, 4}) {
    EXPECT_EQ(sink->wait_done(id).tokens,
              testing::FakeAgent::expected_tokens({1, 2}, 2, kFakeVocabSize));
  }
  second->cancel({1, 2});  // has ended
  EXPECT_EQ(census->num_loads("/models/a"), 2);
  EXPECT_EQ(run(6, "a").error, "");
}

TEST_F(RequestWays, CountersGoOnOverALostDevice) {
  Loss loss;
  loss.num_steps_left = 3;
  lose_device(loss);
  start();
  EXPECT_EQ(run(1, "a").error, "");
  submit(2, "a");
  loss.in_step.get_future().wait();
  gated = true;
  loss.go.set_value();
  EXPECT_EQ(sink->wait_done(2).error, "the step failed: sticky");
  EXPECT_TRUE(
      eventually([&] { return status_of_a().progress_percent == 50; }));  // it is loaded again
  const auto expect_counted = [this](int num_runs) {
    const engine::EngineStats stats = status_of_a().stats;
    EXPECT_EQ(stats.num_steps, 2 * num_runs + 1);
    EXPECT_EQ(stats.num_failed_steps, 1);
    EXPECT_EQ(stats.num_generated_tokens, 2 * num_runs);
    EXPECT_EQ(stats.metrics.num_finished[static_cast<std::size_t>(FinishReason::kLength)].value(),
              static_cast<std::uint64_t>(num_runs));
    EXPECT_EQ(stats.metrics.num_failed[static_cast<std::size_t>(ErrorCode::kInternal)].value(), 1U);
    return stats;
  };
  const engine::EngineStats between = expect_counted(1);
  EXPECT_EQ(between.agent.num_blocks, 0) << "there is no agent";
  EXPECT_EQ(between.num_blocks_free, 0);
  open_gate();
  EXPECT_EQ(run(3, "a").error, "");
  const engine::EngineStats after = expect_counted(2);
  EXPECT_GT(after.agent.num_blocks, 0);
  EXPECT_GE(after.busy_us, between.busy_us);
}

// Between the end of a lost engine's queue and its last word.
struct LostHook {
  struct State {
    RequestWays::Loss loss;
    std::atomic<std::thread::id> thread = {};
    std::promise<void> closed;
    std::promise<void> go;
  };
  explicit LostHook(std::shared_ptr<State> state_in) : state(std::move(state_in)) {}
  LostHook(const LostHook&) = default;
  LostHook& operator=(const LostHook&) = delete;
  // The agent is gone, and what it was lost by with it.
  ~LostHook() {
    if (std::thread::id self = std::this_thread::get_id();
        !state->thread.compare_exchange_strong(self, std::thread::id())) {
      return;
    }
    state->closed.set_value();
    state->go.get_future().wait();
  }
  bool operator()() const {
    if (!state->loss.lost.exchange(false)) return false;
    state->thread = std::this_thread::get_id();
    return true;
  }
  std::shared_ptr<State> state;
};

TEST_F(RequestWays, WhatComesBeforeALossIsToldIsNotForgotten) {
  const auto state = std::make_shared<LostHook::State>();
  lose_device(state->loss);
  is_lost = LostHook(state);
  start();
  submit(1, "a");
  state->loss.in_step.get_future().wait();
  const auto second = canceller_of(manager->submit(make(2, "a")));
  gated = true;
  state->loss.go.set_value();
  state->closed.get_future().wait();
  second->cancel({1, 2});
  const auto third = canceller_of(manager->submit(make(3, "a")));
  EXPECT_EQ(sink->wait_loading(3).progress, std::vector<int>{0}) << "not the 100 of before";
  state->go.set_value();
  EXPECT_EQ(sink->wait_done(2).error, "cancelled");
  EXPECT_TRUE(eventually([&] { return manager->list().front().stats.num_waiting == 1; }));
  open_gate();
  EXPECT_EQ(sink->wait_done(3).error, "");
  EXPECT_EQ(sink->wait_done(2).num_ends, 1);
  EXPECT_EQ(manager->refusals().count(ErrorCode::kCancelled), 1U) << "the new engine never had it";
}

TEST_F(RequestWays, WhoWaitsWhileAReloadFailsIsToldWhy) {
  Loss loss;
  lose_device(loss);
  start();
  submit(1, "a");
  loss.in_step.get_future().wait();
  submit(2, "a");
  failing = true;
  loss.go.set_value();
  EXPECT_EQ(sink->wait_done(2).error, "model: the weights are broken");
  EXPECT_FALSE(sink->wait_done(2).model_failed) << "it was served until then";
}

TEST_F(RequestWays, ANewcomerIsToldHowFarItIs) {
  gated = true;
  start();
  submit(1, "a");
  EXPECT_TRUE(eventually([&] { return (*manager->status("a"))->progress_percent == 50; }));
  submit(2, "a");
  EXPECT_EQ(sink->wait_loading(2).progress.front(), 50);
}

TEST_F(RequestWays, CancelFindsWhatWaitsUnderAnotherName) {
  std::promise<void> known;
  hold_alias(known.get_future().share());
  gated = true;
  start();
  submit(1, "a");
  const auto alias = canceller_of(manager->submit(make(2, "A")));
  EXPECT_TRUE(eventually([&] { return manager->limits_of("a").has_value(); }));
  known.set_value();
  EXPECT_TRUE(
      eventually([&] { return manager->limits_of("A").has_value(); }));  // they wait together
  alias->cancel({1, 2});
  EXPECT_EQ(sink->wait_done(2).error, "cancelled");
  open_gate();
  EXPECT_EQ(sink->wait_done(1).error, "");
}

TEST_F(RequestWays, ALoadingThatNobodyWaitsForEndsOnStop) {
  gated = true;
  start();
  const auto canceller = canceller_of(manager->submit(make(1, "a")));
  EXPECT_TRUE(eventually([&] { return last_kv_bytes != 0; }));
  canceller->cancel({1, 1});
  EXPECT_EQ(sink->wait_done(1).error, "cancelled");
  EXPECT_EQ(state("a"), ModelState::kLoading) << "it goes on";
  manager->stop(60'000);
  EXPECT_EQ(census->num_loads("/models/a"), 0) << "given up";
}

TEST_F(RequestWays, OnlySoManyAreSoughtOrLoadedAtATime) {
  std::promise<void> go;
  fetch = [this, known = go.get_future().share()](const std::string& name, const auto&) {
    known.wait();
    return find(name);
  };
  start({.max_models = 9});
  for (StreamId id = 0; id < kLoadersMax; ++id) {
    EXPECT_EQ(refusal(id, std::string(1, static_cast<char>('a' + id))), "taken");
  }
  EXPECT_EQ(refusal(99, "i"), "overloaded: 8 models are being sought or loaded; retry later");
  go.set_value();
  for (StreamId id = 0; id < kLoadersMax; ++id) EXPECT_EQ(sink->wait_done(id).error, "");
  EXPECT_EQ(run(100, "i").error, "");
}

TEST_F(RequestWays, WhoWaitsForRoomTooLongIsTold) {
  std::atomic<bool> hold = true;
  before_step = [&hold](const auto&) -> Result<void> {
    EXPECT_TRUE(eventually([&] { return !hold; }));
    return {};
  };
  start({.max_models = 1, .memory_wait_ms = 20});
  submit(1, "a");
  wait_for_state("a", ModelState::kReady);
  EXPECT_EQ(run(2, "b").error,
            "model: overloaded: the models in use leave no room for 'b'; retry later");
  hold = false;
  EXPECT_EQ(sink->wait_done(1).error, "");
  StreamId id = 3;  // a slow machine may need more than one try to unload 'a' in that time
  EXPECT_TRUE(eventually([&] { return run(id++, "b").error.empty(); }));
}

// A connection that is gone has many streams, and the actor may be busy.
TEST_F(RequestWays, CancellingLaterDoesNotWaitForTheActor) {
  class Slow : public RecordingSink {
   public:
    void deliver(std::span<StreamEvent> events) override {
      if (!std::exchange(told, true)) {
        reached.set_value();
        go.get_future().wait();
      }
      RecordingSink::deliver(events);
    }
    bool told = false;
    std::promise<void> reached;
    std::promise<void> go;
  };
  gated = true;
  start();
  const auto first = canceller_of(manager->submit(make(1, "a")));
  const auto slow = std::make_shared<Slow>();
  Request request = make(2, "a");
  request.sink = slow;
  auto second = std::async(std::launch::async, [&] { manager->submit(std::move(request)); });
  slow->reached.get_future().wait();  // on the actor's thread
  first->cancel_later({1, 1});
  EXPECT_EQ(sink->wait_loading(1).num_ends, 0);
  slow->go.set_value();
  second.get();
  EXPECT_EQ(sink->wait_done(1).error, "cancelled");
  open_gate();
  EXPECT_EQ(slow->wait_done(2).error, "");
}

TEST_F(RequestWays, OnADeviceTheKvCacheIsWhatIsFreeBesideTheWeights) {
  on_device = true;
  memory_bytes = 139 * kGi;
  start();
  EXPECT_EQ(run(1, "a").error, "");
  EXPECT_EQ(last_kv_bytes, 137 * kGi) << "less the weights and 1 GiB";
}

}  // namespace
}  // namespace lmtp::registry
