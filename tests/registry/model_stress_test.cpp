// Many threads that ask, cancel and vanish, over more models than fit, some of which cannot be
// loaded: every stream is answered once and rightly, no model goes while it has streams, none is
// loaded twice.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "fake_factory.h"
#include "lmtp/registry/registry.h"
#include "recording_sink.h"

namespace lmtp::registry {
namespace {

using testing::AgentCensus;
using testing::CountedAgent;
using testing::FakeAgent;
using testing::FakeFactory;
using testing::kFakeVocabSize;
using testing::RecordingSink;

constexpr int kNumThreads = 6;
constexpr int kNumRounds = 60;
constexpr int kStreamsARound = 4;
constexpr int kNumNames = 5;

struct Stress {
  explicit Stress(AutoOptions options) {
    auto factory =
        std::make_unique<FakeFactory>([this](const std::string& name) { return find(name); });
    manager = std::make_unique<Registry>(std::move(factory), options);
  }

  // Names are "0" to "4", each also with a "'" behind; "broken..." cannot be found; every seventh
  // load fails.
  Result<ServedModel> find(const std::string& name) {
    if (name.starts_with("broken")) return Error{ErrorCode::kInternal, "'" + name + "' is unknown"};
    ServedModel model = testing::fake_served_model(name.substr(0, 1));
    model.description.name = name;
    model.options.debug.check_invariants = true;
    model.load = [this, key = model.key](std::int64_t, const scheduler::LoadProgress& progress)
        -> Result<std::unique_ptr<scheduler::ModelAgent>> {
      for (const int percent : {20, 60, 100}) {
        if (!progress(percent)) return Error{ErrorCode::kInternal, "given up"};
      }
      if (++num_loads % 7 == 0) return Error{ErrorCode::kInternal, "this load fails"};
      testing::FakeAgentOptions agent;
      agent.num_blocks = 128;
      return std::unique_ptr<scheduler::ModelAgent>(
          std::make_unique<CountedAgent>(agent, census, key));
    };
    return model;
  }

  std::shared_ptr<AgentCensus> census = std::make_shared<AgentCensus>();
  std::atomic<int> num_loads = 0;
  std::atomic<int> num_finished = 0;
  std::atomic<int> num_failed = 0;
  std::atomic<int> num_cancelled = 0;
  std::atomic<int> num_refused = 0;
  std::atomic<int> num_vanished = 0;  // their streams are not looked at
  std::unique_ptr<Registry> manager;
};

std::string draw_name(std::mt19937& random) {
  if (random() % 12 == 0) return "broken" + std::to_string(random() % 3);
  const std::string name = std::to_string(random() % kNumNames);
  return random() % 3 == 0 ? name + "'" : name;
}

// What must be true of a stream that was taken, when it has ended.
void check_ended(Stress& stress, const RecordingSink::Stream& stream, TokenId first, int max_tokens,
                 bool cancelled) {
  EXPECT_EQ(stream.num_ends, 1);
  EXPECT_FALSE(stream.event_after_end);
  if (stream.model_failed) {
    EXPECT_TRUE(stream.tokens.empty());
    ++stress.num_failed;
  } else if (stream.error.empty()) {
    EXPECT_EQ(stream.tokens, FakeAgent::expected_tokens({first, 7}, max_tokens, kFakeVocabSize));
    ++stress.num_finished;
  } else {
    EXPECT_TRUE(cancelled) << stream.error;
    EXPECT_EQ(stream.error, "cancelled");
    ++stress.num_cancelled;
  }
}

// One connection: a few streams at once, some of them cancelled.
void run_round(Stress& stress, ConnectionId connection, std::mt19937& random) {
  struct Sent {
    std::shared_ptr<StreamCanceller> canceller;
    TokenId first = 0;
    int max_tokens = 0;
    bool cancelled = false;
  };
  const auto sink = std::make_shared<RecordingSink>();
  std::vector<Sent> all(kStreamsARound);
  for (StreamId id = 0; id < kStreamsARound; ++id) {
    Sent& sent = all[static_cast<std::size_t>(id)];
    sent.first = static_cast<TokenId>(random() % kFakeVocabSize);
    sent.max_tokens = 1 + static_cast<int>(random() % 12);
    Request request;
    request.key = {connection, id};
    request.sink = sink;
    request.model = draw_name(random);
    request.prompt = {sent.first, 7};
    request.params.max_tokens = sent.max_tokens;
    Submission submitted = stress.manager->submit(std::move(request));
    if (auto* canceller = std::get_if<std::shared_ptr<StreamCanceller>>(&submitted)) {
      sent.canceller = std::move(*canceller);
    } else {
      EXPECT_NE(std::get<Refusal>(submitted).error.message.find("overloaded"), std::string::npos);
      ++stress.num_refused;
    }
  }
  const bool vanishes = random() % 5 == 0;
  for (StreamId id = 0; id < kStreamsARound; ++id) {
    Sent& sent = all[static_cast<std::size_t>(id)];
    if (sent.canceller == nullptr || (!vanishes && random() % 4 != 0)) continue;
    sent.cancelled = true;
    sent.canceller->cancel({connection, id});
  }
  if (vanishes) {  // its streams' ends are not received
    for (const Sent& sent : all) stress.num_vanished += sent.canceller == nullptr ? 0 : 1;
    return;
  }
  for (StreamId id = 0; id < kStreamsARound; ++id) {
    const Sent& sent = all[static_cast<std::size_t>(id)];
    if (sent.canceller == nullptr) continue;
    check_ended(stress, sink->wait_done(id), sent.first, sent.max_tokens, sent.cancelled);
  }
}

void ask_for_info(Stress& stress, std::atomic<bool>& stop) {
  std::mt19937 random(99);
  while (!stop) {
    const std::string name = draw_name(random);
    if (!stress.manager->status(name)) {
      stress.manager->look_up(name, [](const Result<ModelStatus>&) {});
    }
    (void)stress.manager->list();
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

void run_crowd(Stress& stress) {
  std::atomic<bool> stop = false;
  std::thread asker([&] { ask_for_info(stress, stop); });
  std::vector<std::thread> threads;
  for (int t = 0; t < kNumThreads; ++t) {
    threads.emplace_back([&stress, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int round = 0; round < kNumRounds; ++round) {
        run_round(stress, static_cast<ConnectionId>(t * kNumRounds + round), random);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  stop = true;
  asker.join();
}

TEST(ModelStress, EveryStreamIsAnsweredOnceAndNoModelIsLoadedTwice) {
  Stress stress({.max_models = 2, .unload_after_ms = 0});
  run_crowd(stress);
  EXPECT_LE(stress.census->num_alive_max(), 2);
  EXPECT_GT(stress.num_finished, 0);
  EXPECT_GT(stress.num_failed, 0);
  EXPECT_GT(stress.num_loads, kNumNames) << "models were unloaded and loaded again";
  EXPECT_EQ(stress.num_finished + stress.num_failed + stress.num_cancelled + stress.num_refused +
                stress.num_vanished,
            kNumThreads * kNumRounds * kStreamsARound);
  stress.manager->stop(0);
  stress.manager.reset();
  EXPECT_EQ(stress.census->num_alive(), 0);
}

TEST(ModelStress, WithModelsThatAreUnloadedAsSoonAsTheyRest) {
  Stress stress({.max_models = 2, .unload_after_ms = 1});
  run_crowd(stress);
  EXPECT_LE(stress.census->num_alive_max(), 2);
  EXPECT_GT(stress.num_finished, 0);
}

TEST(ModelStress, StoppingAmidTrafficAnswersEverything) {
  for (int round = 0; round < 20; ++round) {
    Stress stress({.max_models = 2, .unload_after_ms = 1});
    const auto sink = std::make_shared<RecordingSink>();
    std::vector<StreamId> taken;
    for (StreamId id = 0; id < 12; ++id) {
      Request request;
      request.key = {1, id};
      request.sink = sink;
      request.model = std::to_string(id % kNumNames);
      request.prompt = {1, 2};
      request.params.max_tokens = 400;
      if (!std::holds_alternative<Refusal>(stress.manager->submit(std::move(request)))) {
        taken.push_back(id);
      }
    }
    if (round % 2 == 0) sink->wait_tokens(0, 1);
    stress.manager->stop(round % 3);
    for (const StreamId id : taken) EXPECT_EQ(sink->wait_done(id).num_ends, 1);
  }
}

}  // namespace
}  // namespace lmtp::registry
