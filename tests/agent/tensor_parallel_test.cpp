// Models that are divided among ranks, behind the engine: a rank that fails or hangs, whose streams
// are answered, whose threads end, and after which the model can be loaded again.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "agent_driver.h"
#include "eventually.h"
#include "lmtp/agent/adapter.h"
#include "lmtp/agent/model_memory.h"
#include "lmtp/engine/engine.h"
#include "load_model.h"
#include "rank_transports.h"
#include "source_dir.h"

namespace lmtp {
namespace {

using model::Transport;

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

agent::AgentOptions divided(int num_ranks, Transport transport = Transport::kLocal) {
  agent::AgentOptions options;
  options.transport = transport;
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
  return testing::eventually([&] { return num_threads() <= count; });
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
    changed_.wait_for(lock, std::chrono::seconds(60), [&] { return ends_.size() >= count; });
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

class RankFailureTest : public ::testing::TestWithParam<std::tuple<Trouble, Transport>> {
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
                         ::testing::Combine(::testing::Values(Trouble::kThrows, Trouble::kHangs),
                                            ::testing::ValuesIn(testing::rank_transports())),
                         [](const auto& which) {
                           const bool hangs = std::get<0>(which.param) == Trouble::kHangs;
                           return std::string(model::transport_name(std::get<1>(which.param))) +
                                  (hangs ? "_hangs" : "_throws");
                         });

TEST_P(RankFailureTest, AllStreamsAreAnsweredAndTheModelIsLoadedAgain) {
  const auto [how, transport] = GetParam();
  const bool hangs = how == Trouble::kHangs;
  agent::AgentOptions options = divided(4, transport);
  options.debug.backend = &troubled_backend();
  if (hangs) options.debug.rank_timeout_ms = 300;
  const std::ptrdiff_t num_before = num_threads();
  gate.set(false);
  trouble = how;
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
      const bool is_named =
          end.find(hangs ? "no sign of rank" : "failed: a product failed") != std::string::npos;
      EXPECT_TRUE(is_named) << end;
    }
  }
  EXPECT_TRUE(was_lost);
  products_left = 0;
  // A thread that hangs is left behind, and holds up nobody; with gloo, what reads its connections,
  // and the thread of each rank's group.
  const int num_left = !hangs ? 0 : transport == Transport::kGloo ? 1 + 2 * 4 : 1;
  EXPECT_TRUE(come_down_to(num_before + num_left));

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

// Everything that a stream gives, by what carries the sums.
std::vector<TokenId> tokens_over(Transport transport, int num_ranks,
                                 std::vector<std::uint32_t>& bits) {
  const auto agent = load(divided(num_ranks, transport));
  testing::AgentDriver driver(*agent);
  std::vector<testing::DrivenStream*> streams;
  for (int i = 0; i < 3; ++i) {
    std::vector<TokenId> prompt;
    for (int k = 0; k < 1 + 13 * i; ++k) prompt.push_back(3 + (7 * k + i) % 60);
    streams.push_back(&driver.generate(prompt, 12, {}));
  }
  driver.run();
  std::vector<TokenId> tokens;
  for (const testing::DrivenStream* stream : streams) {
    for (const scheduler::TokenResult& result : stream->results) {
      tokens.push_back(result.token);
      bits.push_back(std::bit_cast<std::uint32_t>(result.logprob));
    }
  }
  return tokens;
}

TEST(TensorParallelAgentTest, BitsDoNotDependOnWhatCarriesTheSums) {
  if (testing::rank_transports().size() < 2) GTEST_SKIP() << "there is one way";
  for (const int num_ranks : {2, 4}) {
    std::vector<std::uint32_t> local_bits;
    std::vector<std::uint32_t> gloo_bits;
    const auto local = tokens_over(Transport::kLocal, num_ranks, local_bits);
    EXPECT_EQ(local.size(), 36U);
    EXPECT_EQ(tokens_over(Transport::kGloo, num_ranks, gloo_bits), local);
    EXPECT_EQ(gloo_bits, local_bits);
    EXPECT_EQ(load(divided(num_ranks, Transport::kGloo))->info().numerics,
              load(divided(num_ranks))->info().numerics);
  }
  EXPECT_EQ(load(divided(2, Transport::kGloo))->info().notes,
            std::vector<std::string>{"the ranks are connected by gloo"});
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

TEST(TensorParallelAgentTest, RanksAreBoundWhereThereAreSeveralNodesOfMemory) {
  const std::vector<Processor> one_node = {{0, 0, 0}, {1, 1, 0}, {2, 2, 0}, {3, 3, 0}};
  const std::vector<Processor> two_nodes = {{0, 0, 0}, {1, 1, 0}, {2, 2, 1}, {3, 3, 1}};
  EXPECT_EQ(agent::rank_bindings(divided(2), one_node).size(), 0U);
  EXPECT_EQ(agent::rank_bindings(divided(2), two_nodes).size(), 2U);
  EXPECT_EQ(agent::rank_bindings(divided(8), two_nodes).size(), 0U);
  EXPECT_EQ(agent::rank_bindings(divided(2), {}).size(), 0U);
  agent::AgentOptions on_devices = divided(2);
  on_devices.cuda_device = 0;
  EXPECT_EQ(agent::rank_bindings(on_devices, two_nodes).size(), 0U);
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
