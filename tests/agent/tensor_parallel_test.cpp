// Models that are divided among ranks, behind the engine: a rank that fails or hangs, whose streams
// are answered, whose threads end, and after which the model can be loaded again.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <iterator>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "agent_driver.h"
#include "lmtp/agent/adapter.h"
#include "lmtp/agent/model_memory.h"
#include "lmtp/engine/engine.h"
#include "load_model.h"
#include "source_dir.h"

namespace lmtp {
namespace {

using namespace std::chrono_literals;

// Trouble is in the product of that number from now on, in whichever rank comes to it; 0: in none.
std::atomic<int> products_left{0};
enum class Trouble { kThrows, kHangs };
std::atomic<Trouble> trouble{Trouble::kThrows};

// Where a rank hangs until the test lets it go.
class Gate {
 public:
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_open_; });
  }
  void set(bool is_open) {
    const std::lock_guard lock(mutex_);
    is_open_ = is_open;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false;
};
Gate gate;

void troubled_linear(kernels::Stream& stream, const kernels::LinearArgs& args) {
  if (products_left.fetch_sub(1) == 1) {
    if (trouble == Trouble::kThrows) throw std::runtime_error("a product failed");
    gate.wait();
  }
  kernels::cpu_backend().linear(stream, args);
}

const kernels::Backend& troubled_backend() {
  static const kernels::Backend backend = [] {
    kernels::Backend made = kernels::cpu_backend();
    made.linear = troubled_linear;
    return made;
  }();
  return backend;
}

agent::AgentOptions divided(int num_ranks) {
  agent::AgentOptions options;
  options.source = testing::folder_source(testing::source_dir() + "/tests/goldens/ranks/llama");
  options.config = *model::load_model_config(options.source);
  options.num_ranks = num_ranks;
  options.num_threads = num_ranks;
  options.kv_cache_bytes = testing::kTestKvBytes / 16;
  options.batch.max_tokens = testing::kTestBatchedTokens;
  return options;
}

std::unique_ptr<scheduler::ModelAgent> load(const agent::AgentOptions& options) {
  auto made = agent::make_agent(options, nullptr);
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
  return std::move(*made);
}

// Threads of this process.
std::ptrdiff_t num_threads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

// Waits until there are so many: a thread that has been joined may still be listed.
bool come_down_to(std::ptrdiff_t count) {
  for (int i = 0; i < 2000 && num_threads() > count; ++i) std::this_thread::sleep_for(5ms);
  return num_threads() <= count;
}

class EndSink : public EventSink {
 public:
  void deliver(std::span<StreamEvent> events) override {
    const std::lock_guard lock(mutex_);
    for (const StreamEvent& event : events) {
      if (const auto* token = std::get_if<TokenEvent>(&event)) {
        tokens_.push_back(token->token);
        if (token->finish_reason != FinishReason::kNone) ends_.emplace_back();
      } else if (const auto* error = std::get_if<StreamError>(&event)) {
        EXPECT_EQ(error->error.code, ErrorCode::kDeviceLost);
        ends_.push_back(error->error.message);
      }
    }
    changed_.notify_all();
  }
  // Why each of so many streams has ended; "" for those that have all their tokens.
  std::vector<std::string> wait(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, 60s, [&] { return ends_.size() >= count; });
    return ends_;
  }
  std::vector<TokenId> tokens() {
    const std::lock_guard lock(mutex_);
    return tokens_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> ends_;
  std::vector<TokenId> tokens_;
};

class RankFailureTest : public ::testing::TestWithParam<Trouble> {
 protected:
  static engine::EngineOptions engine_options(const agent::AgentOptions& agent) {
    engine::EngineOptions options;
    options.batch = agent.batch;
    options.debug = agent.debug;
    return options;
  }
  static std::vector<Request> requests(const std::shared_ptr<EndSink>& sink, int count) {
    std::vector<Request> made(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) {
      Request& request = made[static_cast<std::size_t>(i)];
      request.key = {1, static_cast<StreamId>(i)};
      request.sink = sink;
      request.prompt = {3 + i, 5, 8};
      request.params.max_tokens = 12;
    }
    return made;
  }
  static engine::ModelLimits limits(const agent::AgentOptions& agent) {
    return {.vocab_size = agent.config.vocab_size, .context_length = 64, .eos_ids = {}};
  }
};

INSTANTIATE_TEST_SUITE_P(Troubles, RankFailureTest,
                         ::testing::Values(Trouble::kThrows, Trouble::kHangs),
                         [](const auto& which) {
                           return which.param == Trouble::kThrows ? "Throws" : "Hangs";
                         });

TEST_P(RankFailureTest, AllStreamsAreAnsweredAndTheModelIsLoadedAgain) {
  agent::AgentOptions options = divided(4);
  options.debug.backend = &troubled_backend();
  if (GetParam() == Trouble::kHangs) options.debug.rank_timeout_ms = 300;
  const std::ptrdiff_t num_before = num_threads();
  gate.set(false);
  trouble = GetParam();
  const auto sink = std::make_shared<EndSink>();
  std::atomic<bool> was_lost{false};
  {
    engine::Engine engine(load(options), limits(options), engine_options(options),
                          [&](const std::vector<Request>&) { was_lost = true; });
    products_left = 60;  // some steps on
    auto submitted = requests(sink, 3);
    EXPECT_TRUE(engine.instance().submit_all(submitted));
    const std::vector<std::string> ends = sink->wait(3);
    ASSERT_EQ(ends.size(), 3U);
    for (const std::string& end : ends) {
      const bool is_named = GetParam() == Trouble::kThrows
                                ? end.find("failed: a product failed") != std::string::npos
                                : end.find("no sign of rank") != std::string::npos;
      EXPECT_TRUE(is_named) << end;
    }
  }
  EXPECT_TRUE(was_lost);
  products_left = 0;
  // A thread that hangs is left behind, and holds up nobody.
  EXPECT_TRUE(come_down_to(num_before + (GetParam() == Trouble::kHangs ? 1 : 0)));

  const auto sound = std::make_shared<EndSink>();
  options.debug.rank_timeout_ms = scheduler::DebugOptions().rank_timeout_ms;
  {
    engine::Engine again(load(options), limits(options), engine_options(options));
    auto submitted = requests(sound, 3);
    EXPECT_TRUE(again.instance().submit_all(submitted));
    EXPECT_EQ(sound->wait(3), std::vector<std::string>(3));
  }
  EXPECT_EQ(sound->tokens().size(), 36U);
  gate.set(true);
  EXPECT_TRUE(come_down_to(num_before));
}

TEST(TensorParallelAgentTest, SaysWhatEachRankHolds) {
  const auto whole = load(divided(1))->info();
  const auto halves = load(divided(2))->info();
  const auto quarters = load(divided(4))->info();
  ASSERT_EQ(whole.ranks.size(), 1U);
  ASSERT_EQ(halves.ranks.size(), 2U);
  ASSERT_EQ(quarters.ranks.size(), 4U);
  EXPECT_EQ(halves.device, "cpu");
  EXPECT_EQ(halves.num_parameters, whole.num_parameters);
  EXPECT_EQ(halves.num_blocks, whole.num_blocks);
  EXPECT_EQ(halves.kv_bytes, whole.kv_bytes);
  EXPECT_LT(halves.ranks[1].weights_bytes, whole.ranks[0].weights_bytes * 6 / 10);
  EXPECT_LT(quarters.ranks[3].weights_bytes, whole.ranks[0].weights_bytes * 4 / 10);
  EXPECT_NE(halves.numerics, whole.numerics);
  EXPECT_NE(halves.numerics, quarters.numerics);
  EXPECT_EQ(halves.numerics, load(divided(2))->info().numerics);
}

TEST(TensorParallelAgentTest, ANumberThatDoesNotDivideIsRefusedWithThoseThatDo) {
  const auto made = agent::make_agent(divided(3), nullptr);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().message,
            "--tensor-parallel-size: this model cannot be divided among 3 ranks: 8 heads, 4 KV "
            "heads and an MLP of 44 allow 1, 2, 4");
  EXPECT_EQ(agent::estimate_memory(divided(3)).error().message, made.error().message);
}

TEST(TensorParallelAgentTest, MoreRanksThanDevicesAreRefused) {
  agent::AgentOptions options = divided(4);
  options.cuda_device = 1;
  EXPECT_TRUE(agent::enough_devices(options, 5).ok());
  EXPECT_EQ(agent::enough_devices(options, 3).error().message,
            "--tensor-parallel-size: 4 ranks need as many CUDA devices, and from cuda:1 on there "
            "are 2; give at most 2");
  EXPECT_EQ(agent::device_name(options), "cuda:1,2,3,4");
}

TEST(TensorParallelAgentTest, AdaptersAreRefused) {
  EXPECT_TRUE(agent::takes_adapters(divided(1)).ok());
  const auto taken = agent::takes_adapters(divided(2));
  ASSERT_FALSE(taken.ok());
  EXPECT_NE(taken.error().message.find("--tensor-parallel-size"), std::string::npos);
}

TEST(TensorParallelAgentTest, ALoadingThatIsGivenUpEndsAllRanks) {
  const std::ptrdiff_t num_before = num_threads();
  std::atomic<int> num_calls{0};
  const auto made = agent::make_agent(divided(4), [&](int percent) {
    EXPECT_TRUE(percent >= 0 && percent <= 100);
    ++num_calls;
    return false;
  });
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find("given up"), std::string::npos) << made.error().message;
  EXPECT_EQ(num_calls, 1);
  EXPECT_TRUE(come_down_to(num_before));
}

}  // namespace
}  // namespace lmtp
