// Memory that runs out on the registry's thread, at each place in turn: whatever happens, every
// stream that was taken gets its end once, and models are loaded afterwards as before.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "failing_allocations.h"
#include "fake_factory.h"
#include "registry_actor.h"

namespace lmtp::registry {
namespace {

using testing::AgentCensus;
using testing::allocations_left;
using testing::CountedAgent;
using testing::FakeFactory;
using testing::PostingSink;
using testing::RecordingSink;

// An auto server of one model at a time, "a" (also "A") or "b".
struct Server {
  Server() : factory([this](const std::string& name) { return find(name); }) {
    factory.set_fetch([this](const std::string& name, const auto& progress) {
      allocations_left = fail_fetch.exchange(0);
      progress({1, 2});
      return find(name);
    });
  }
  ~Server() {
    mailbox->post([](RegistryActor& asked) { asked.stop(Clock::now()); });
    thread.join();
  }

  Result<ServedModel> find(const std::string& name) {
    testing::FakeAgentOptions agent;
    agent.before_step = [this](const auto&) -> Result<void> {
      if (!lost) return {};
      while (!queued) std::this_thread::yield();
      return Error{ErrorCode::kInternal, "sticky"};
    };
    agent.is_lost = [this] { return lost.exchange(false); };
    ServedModel model = testing::fake_served_model(name == "A" ? "a" : name, agent);
    model.load = [this, agent, key = model.key](std::int64_t, const auto& progress) mutable
        -> Result<std::unique_ptr<scheduler::ModelAgent>> {
      if (fail_message.exchange(false)) {
        const std::runtime_error error("too long a text to stand in a string without memory");
        allocations_left = 1;
        throw error;
      }
      allocations_left = fail_load.exchange(0);
      progress(50);
      const int left = std::exchange(allocations_left, 0);  // the agent is the test's own affair
      std::unique_ptr<scheduler::ModelAgent> made =
          std::make_unique<CountedAgent>(agent, census, key);
      allocations_left = left;
      return made;
    };
    return model;
  }

  void submit(StreamId id, const std::string& name) {
    Request request;
    request.key = {1, id};
    request.sink = sink;
    request.model = name;
    request.prompt = {1, 2};
    request.params.max_tokens = 2;
    try {
      const auto answer =
          mailbox->ask([&](RegistryActor& asked) { return asked.submit(request, nullptr); });
      if (std::holds_alternative<std::shared_ptr<StreamCanceller>>(*answer)) taken.push_back(id);
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): it is refused
    }
  }
  void expect_ends(int failing) {
    for (const StreamId id : std::exchange(taken, {})) {
      const RecordingSink::Stream stream = sink->wait_done(id);
      EXPECT_EQ(stream.num_ends, 1) << "allocation " << failing << ", stream " << id;
      EXPECT_FALSE(stream.event_after_end) << failing;
    }
  }
  void arm(int failing) {
    mailbox->ask([&](RegistryActor&) {
      allocations_left = failing;
      return true;
    });
  }
  // Whether one has failed.
  bool disarm() {
    return *mailbox->ask([](RegistryActor&) { return std::exchange(allocations_left, 0) == 0; });
  }

  std::shared_ptr<AgentCensus> census = std::make_shared<AgentCensus>();
  std::shared_ptr<PostingSink> sink = std::make_shared<PostingSink>();
  std::shared_ptr<Mailbox> mailbox = std::make_shared<Mailbox>();
  // The so manieth allocation of the next job of that kind, where it is not 0.
  std::atomic<int> fail_fetch = 0;
  std::atomic<int> fail_load = 0;
  std::atomic<bool> fail_message = false;  // the next load throws, and its Error has no memory
  std::atomic<bool> lost = false;
  std::atomic<bool> queued = false;
  std::vector<StreamId> taken;
  FakeFactory factory;
  PublishedDirectory published;
  RefusalCounts refusals;
  RegistryActor actor{factory,
                      {.is_auto = true, .limits = {.max_models = 1}, .only = {}},
                      mailbox,
                      published,
                      refusals};
  std::thread thread{[this] { actor.run(); }};
};

// Requests wait for a model, under two names; it is loaded, lost, loaded again, and unloaded for
// another one.
bool run_with_failing(int failing) {
  Server server;
  server.arm(failing);
  server.submit(1, "a");
  server.submit(2, "A");
  server.expect_ends(failing);
  server.lost = true;
  server.submit(3, "a");
  server.submit(4, "a");
  server.queued = true;
  server.expect_ends(failing);
  server.lost = false;
  server.submit(5, "b");
  server.expect_ends(failing);
  const bool failed = server.disarm();
  for (const StreamId id : {6, 7}) {
    server.submit(id, id == 6 ? "a" : "b");
    EXPECT_FALSE(server.taken.empty()) << failing;
    server.expect_ends(failing);
    EXPECT_EQ(server.sink->wait_done(id).error, "") << failing;
  }
  return failed;
}

bool stop_with_failing(int failing) {
  Server server;
  server.submit(1, "a");
  server.expect_ends(failing);
  server.lost = true;  // holds the step of 2
  server.submit(2, "a");
  server.submit(3, "b");
  std::promise<bool> failed;
  server.mailbox->post([&](RegistryActor& actor) {
    allocations_left = failing;
    actor.stop(Clock::now());
    failed.set_value(std::exchange(allocations_left, 0) == 0);
  });
  server.queued = true;  // an engine may be ended on the actor's own thread
  server.expect_ends(failing);
  return failed.get_future().get();
}

TEST(RegistryMemory, RunsOutAtAnyPlace) {
  int failing = 1;
  while (run_with_failing(failing) && failing < 2000 && !HasFailure()) ++failing;
  EXPECT_GT(failing, 50);
  EXPECT_LT(failing, 2000);
}

TEST(RegistryMemory, RunsOutInAJob) {
  for (int failing = 1; failing <= 80 && !HasFailure(); ++failing) {
    for (const auto kind : {&Server::fail_fetch, &Server::fail_load}) {
      Server server;
      server.*kind = failing;
      server.submit(1, "a");
      EXPECT_FALSE(server.taken.empty());
      server.expect_ends(failing);
      server.submit(2, "a");
      server.expect_ends(failing);
      EXPECT_EQ(server.sink->wait_done(2).error, "") << failing;
    }
  }
}

// The job ends by the exception, and the thread that reads the texts beside it is joined.
TEST(RegistryMemory, RunsOutForAnError) {
  Server server;
  server.fail_message = true;
  server.submit(1, "a");
  server.expect_ends(0);
  EXPECT_NE(server.sink->wait_done(1).error, "");
  server.submit(2, "a");
  server.expect_ends(0);
  EXPECT_EQ(server.sink->wait_done(2).error, "");
}

TEST(RegistryMemory, RunsOutAtTheStop) {
  int failing = 1;
  while (stop_with_failing(failing) && failing < 200 && !HasFailure()) ++failing;
  EXPECT_GT(failing, 3);
  EXPECT_LT(failing, 200);
}

}  // namespace
}  // namespace lmtp::registry
