// One connection to a registry over null agents.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "eventually.h"
#include "fake_factory.h"
#include "lmtp/registry/registry.h"
#include "recording_sink.h"

namespace lmtp::registry {

using testing::AgentCensus;
using testing::CountedAgent;
using testing::eventually;
using testing::FakeFactory;
using testing::kFakeVocabSize;
using testing::RecordingSink;

inline constexpr std::int64_t kGi = std::int64_t{1} << 30;

// Models "a" to "i"; "A" is another name of "a". A test may make
// loads wait, fail, or need much.
struct RegistryTest : ::testing::Test {
  ~RegistryTest() override { open_gate(); }

  void start(AutoOptions options = {}) {
    auto factory =
        std::make_unique<FakeFactory>([this](const std::string& name) { return find(name); });
    if (fetch) factory->set_fetch(fetch);
    factory->set_free_memory([this]() -> std::optional<std::int64_t> {
      const std::int64_t total = memory_bytes;
      if (total == 0) return std::nullopt;
      return total - census->num_alive() * model_bytes;
    });
    manager = std::make_unique<Registry>(std::move(factory), std::move(options));
  }

  Result<ServedModel> find(const std::string& name) {
    const std::string letter = name == "A" ? "a" : name;
    if (letter.size() != 1 || letter < "a" || letter > "i") {
      return Error{ErrorCode::kInternal, "'" + name + "' is unknown"};
    }
    ServedModel model = testing::fake_served_model(letter);
    model.description.name = name;
    model.memory.weights_bytes = letter == "e" ? bytes_of_e : model_bytes.load();
    model.memory.on_device = on_device;
    model.context_of = context_of;
    if (load_tokenizer) model.load_tokenizer = load_tokenizer;
    model.load = [this, key = model.key](std::int64_t kv_bytes,
                                         const scheduler::LoadProgress& progress)
        -> Result<std::unique_ptr<scheduler::ModelAgent>> {
      last_kv_bytes = kv_bytes;
      progress(50);
      while (gated && gate.get_future_status() != std::future_status::ready) {
        if (!progress(50)) return Error{ErrorCode::kInternal, "given up"};
      }
      if (failing) return Error{ErrorCode::kInternal, "the weights are broken"};
      testing::FakeAgentOptions agent;
      agent.before_step = before_step;
      agent.is_lost = is_lost;
      return std::unique_ptr<scheduler::ModelAgent>(
          std::make_unique<CountedAgent>(agent, census, key));
    };
    return model;
  }

  Submission submit(StreamId id, const std::string& model, int max_tokens = 2) {
    Request request;
    request.key = {1, id};
    request.sink = sink;
    request.model = model;
    request.prompt = {1, 2};
    request.params.max_tokens = max_tokens;
    return manager->submit(std::move(request));
  }
  std::string refusal(StreamId id, const std::string& model) {
    const Submission answer = submit(id, model);
    const auto* refused = std::get_if<Refusal>(&answer);
    return refused == nullptr ? "taken" : refused->error.message;
  }
  // The whole way of one stream.
  RecordingSink::Stream run(StreamId id, const std::string& model) {
    EXPECT_EQ(refusal(id, model), "taken");
    return sink->wait_done(id);
  }
  ModelState state(const std::string& name) {
    if (const auto status = manager->status(name)) {
      return status->ok() ? (*status)->state : ModelState::kFailed;
    }
    std::promise<Result<ModelStatus>> answer;
    EXPECT_TRUE(
        manager->look_up(name, [&](Result<ModelStatus> s) { answer.set_value(std::move(s)); }));
    const Result<ModelStatus> status = answer.get_future().get();
    return status ? status->state : ModelState::kStopping;
  }
  void wait_for_state(const std::string& name, ModelState wanted) {
    EXPECT_TRUE(eventually([&] { return state(name) == wanted; }));
  }
  void open_gate() {
    if (!std::exchange(opened, true)) gate.open();
  }

  // A future that many may look at.
  struct Gate {
    std::promise<void> promise;
    std::shared_future<void> future = promise.get_future().share();
    void open() { promise.set_value(); }
    std::future_status get_future_status() const {
      return future.wait_for(std::chrono::milliseconds(1));
    }
  };

  std::shared_ptr<AgentCensus> census = std::make_shared<AgentCensus>();
  std::shared_ptr<RecordingSink> sink = std::make_shared<RecordingSink>();
  FakeFactory::Fetch fetch;
  std::function<Result<void>(const scheduler::StepPlan&)> before_step;
  std::function<bool()> is_lost;
  std::function<int(std::int64_t)> context_of;
  std::function<LoadedTokenizer()> load_tokenizer;
  Gate gate;
  bool opened = false;
  std::atomic<bool> gated = false;
  std::atomic<bool> failing = false;
  std::atomic<std::int64_t> memory_bytes = 0;
  std::atomic<std::int64_t> last_kv_bytes = 0;
  std::atomic<std::int64_t> model_bytes = kGi;
  std::int64_t bytes_of_e = kGi;
  bool on_device = false;
  std::unique_ptr<Registry> manager;
};

}  // namespace lmtp::registry
