// Steps with prompts as graphs, and graphs that are there when a model is loaded: their bits are
// those of steps that run kernel by kernel, and what the host calls is counted.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent_driver.h"
#include "bit_cases.h"
#include "counted_device.h"
#include "device_under_test.h"
#include "source_dir.h"
#include "usual_steps.h"

namespace lmtp {
namespace {

using kernels::ElementType;
using kernels::WeightType;
using scheduler::TokenResult;
using testing::AgentDriver;
using testing::device_counts;
using testing::DeviceCalls;
using testing::DrivenStream;
using testing::expect_same_bits;
using testing::params_of;
using testing::prompt_of;
using testing::take_calls;
using testing::take_captures;

using Results = std::vector<std::vector<TokenResult>>;

struct Case {
  std::string folder;
  WeightType type = WeightType::kBF16;
  std::optional<ElementType> kv_type = {};
  int longest = 50;  // prompt
};

agent::AgentOptions options_of_case(const Case& of) {
  agent::AgentOptions options;
  options.source = testing::folder_source(testing::source_dir() + "/tests/goldens/" + of.folder);
  options.config = *model::load_model_config(options.source);
  options.cuda_device = 0;
  options.weight_type = of.type;
  options.kv_cache_type = of.kv_type;
  options.kv_cache_bytes = std::int64_t{1} << 24;
  options.debug.backend = &testing::counted_device();
  options.debug.graphs_at_load_ms = 0;
  return options;
}

std::unique_ptr<scheduler::ModelAgent> make(const agent::AgentOptions& options) {
  auto agent = agent::make_agent(options, nullptr);
  EXPECT_TRUE(agent.ok()) << (agent.ok() ? "" : agent.error().message);
  return std::move(*agent);
}

// The same without graphs.
std::unique_ptr<scheduler::ModelAgent> make_plain(agent::AgentOptions options) {
  options.debug.step_graphs = false;
  return make(options);
}

// Prompts of several lengths in chunks of several sizes beside decodes, a SCORE, and chunks that
// end in the middle of a prompt or of a block. Returns the results and the number of steps.
std::pair<Results, int> serve(scheduler::ModelAgent& agent, int longest) {
  AgentDriver driver(agent);
  std::vector<const DrivenStream*> streams;
  const std::pair<int, int> prompts[] = {{3, 512}, {longest, 47}, {17, 5}, {16, 16}};
  for (const auto& [length, chunk] : prompts) {
    const auto number = static_cast<int>(streams.size());
    streams.push_back(&driver.generate(prompt_of(number, length), 3, params_of(number), chunk));
  }
  streams.push_back(&driver.score(prompt_of(7, 9), prompt_of(8, 20), 12));
  int num_steps = 0;
  while (driver.step()) ++num_steps;
  Results results;
  for (const DrivenStream* stream : streams) results.push_back(stream->results);
  return {results, num_steps};
}

class PromptGraphsTest : public ::testing::TestWithParam<Case> {
 protected:
  void TearDown() override {
    testing::set_thread_order(0);
    testing::set_lazy_device(false);
  }
};

INSTANTIATE_TEST_SUITE_P(Models, PromptGraphsTest,
                         ::testing::Values(Case{.folder = "checkpoints/untied-f32", .longest = 300},
                                           Case{"families/llama3-tied", WeightType::kInt8,
                                                ElementType::kE4M3},
                                           Case{"families/qwen2-window", WeightType::kF32}));

TEST_P(PromptGraphsTest, GiveTheBitsOfStepsWithout) {
  const agent::AgentOptions options = options_of_case(GetParam());
  const auto [expected, num_steps] = serve(*make_plain(options), GetParam().longest);
  EXPECT_EQ(take_calls().graphs, 0);
  const auto agent = make(options);
  for (int turn = 0; turn < 3; ++turn) {
    SCOPED_TRACE(turn);
    testing::set_thread_order(static_cast<unsigned>(turn));
    testing::set_lazy_device(turn == 2);
    (void)take_captures();
    (void)take_calls();
    expect_same_bits(serve(*agent, GetParam().longest).first, expected);
    // Decodes are captured for each turn of the host's memory, and memory may move in the first.
    if (turn == 2) {
      EXPECT_EQ(take_calls().graphs, num_steps);
      EXPECT_EQ(take_captures(), 0);
    }
  }
}

// Results of a step with those prompts.
Results serve_at_once(scheduler::ModelAgent& agent, const std::vector<int>& lengths) {
  AgentDriver driver(agent);
  std::vector<const DrivenStream*> streams;
  for (const int length : lengths) {
    const auto number = static_cast<int>(streams.size()) + length;
    streams.push_back(&driver.generate(prompt_of(number, length), 1, params_of(number)));
  }
  driver.run();
  Results results;
  for (const DrivenStream* stream : streams) results.push_back(stream->results);
  return results;
}

// Nothing of the step that was captured is left in its graph: neither numbers nor tables.
TEST(PromptShapesTest, AGraphServesAllStepsOfItsShape) {
  const agent::AgentOptions options = options_of_case({.folder = "families/llama3-tied"});
  const auto plain = make_plain(options);
  const auto agent = make(options);
  // Those that are captured, the second ones, have few rows and short chunks.
  const std::vector<int> steps[] = {{20, 1, 13},   {20, 14},   {33, 16},        {32, 18},
                                    {1, 1, 31, 2}, {60, 2},    {17, 30, 2, 15}, {20, 1},
                                    {2, 25},       {48, 1, 1}, {1, 1, 1, 61}};
  std::vector<Results> expected;
  for (const std::vector<int>& step : steps) expected.push_back(serve_at_once(*plain, step));
  for (int round = 0; round < 2; ++round) {
    (void)take_captures();
    (void)take_calls();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expect_same_bits(serve_at_once(*agent, steps[i]), expected[i]);
      const int graphs = take_calls().graphs;
      if (round == 1) {
        EXPECT_EQ(graphs, 1);
      }
    }
    EXPECT_EQ(take_captures(), round == 0 ? 4 : 0);  // 32, 48 or 64 tokens, 32 or all of a prompt
  }
}

// Nor is the number of splits of attention: of 4 tokens behind others there are three when their
// shape is captured, and then four.
TEST(PromptShapesTest, SoItDoesWithLongContexts) {
  agent::AgentOptions options = options_of_case({.folder = "families/llama3-tied"});
  options.source.kind = SourceKind::kRandom;
  options.source.seed = 7;
  options.config.context_length = 1024;
  options.config.num_layers = 2;  // the second has what attention gave in the first
  const auto run = [](scheduler::ModelAgent& agent) {
    AgentDriver driver(agent);
    DrivenStream& stream = driver.generate(prompt_of(1, 780), 1, params_of(2));
    for (const int chunk : {256, 256, 4, 4, 248, 4, 8}) {
      stream.chunk = chunk;
      driver.step();
    }
    return stream.results;
  };
  const auto expected = run(*make_plain(options));
  (void)take_captures();
  expect_same_bits(run(*make(options)), expected);
  EXPECT_EQ(take_captures(), 1);
}

// A step with so many copies of blocks that the memory of its arrays moves.
TEST(PromptShapesTest, GraphsGoWhereWhatTheyReadMoves) {
  constexpr std::size_t kFirstBytes = std::size_t{1} << 20;  // of an Upload
  const agent::AgentOptions options = options_of_case({.folder = "families/llama3-tied"});
  const auto plain = make_plain(options);
  const auto agent = make(options);
  const Results expected = serve_at_once(*plain, {20});
  for (int i = 0; i < 2; ++i) (void)serve_at_once(*agent, {20});
  for (const bool moves : {false, true, false}) {
    AgentDriver driver(*agent);
    for (std::size_t i = 0; moves && i <= kFirstBytes / sizeof(kernels::KvCopy); ++i) {
      driver.copy_before_next_step({.from = 9, .to = 8, .num_tokens = 1});
    }
    const DrivenStream& stream = driver.generate(prompt_of(20, 20), 1, params_of(20));
    (void)take_calls();
    (void)take_captures();
    driver.run();
    EXPECT_EQ(take_captures(), moves ? 1 : 0);
    EXPECT_EQ(take_calls().graphs, 1);
    expect_same_bits(stream.results, expected[0]);
  }
}

// One prompt, whose blocks are others each time, as its tokens are.
TEST(PromptCallsTest, AStepWithAPromptIsACopyAGraphAndItsSampling) {
  const agent::AgentOptions options = options_of_case({.folder = "families/llama3-tied"});
  const auto calls_of_step = [](scheduler::ModelAgent& agent, int number) {
    AgentDriver driver(agent);
    (void)driver.generate(prompt_of(5, 16 * number), 1);
    driver.run();
    (void)take_calls();
    (void)take_captures();
    (void)testing::take_num_launches();
    (void)driver.generate(prompt_of(number, 20 + number), 1);
    driver.run();
    return take_calls();
  };
  const DeviceCalls before = calls_of_step(*make_plain(options), 3);
  const int num_launches = testing::take_num_launches();
  const auto agent = make(options);
  for (int number = 1; number < 3; ++number) (void)calls_of_step(*agent, number);
  const DeviceCalls after = calls_of_step(*agent, 3);
  EXPECT_EQ(take_captures(), 0);
  EXPECT_EQ(before.copies, 1);
  EXPECT_EQ(testing::take_num_launches(), num_launches);
  const bool counts_launches = before.launches > 0;  // on the emulation
  EXPECT_EQ(before.launches, num_launches);
  EXPECT_EQ(after, (DeviceCalls{
                       .graphs = 1, .launches = counts_launches ? 1 : 0, .copies = 1, .events = 1}))
      << before;
}

// As a server makes it, with few streams and short ones, since the emulation takes long.
agent::AgentOptions options_of_server() {
  agent::AgentOptions options = options_of_case({.folder = "checkpoints/untied-f32"});
  options.context_length = 70;
  options.batch.max_sequences = 4;
  options.debug.graphs_at_load_ms = 600'000;
  return options;
}

class GraphsAtLoadTest : public ::testing::Test {
 protected:
  GraphsAtLoadTest() {
    device_counts = {};
    (void)take_calls();
  }
  ~GraphsAtLoadTest() override { device_counts = {}; }
};

TEST_F(GraphsAtLoadTest, UsualStepsAreGraphsFromTheFirstOn) {
  const agent::AgentOptions options = options_of_server();
  const auto plain = make_plain(options);
  EXPECT_EQ(take_captures(), 0);
  const auto agent = make(options);
  // Of 1, 2 and 4 rows, a graph each turn, and with masks; of up to 16, 32, 48, 64 and 96 tokens.
  EXPECT_EQ(agent::usual_steps(options.batch, options.context_length).size(), 3U + 5 + 3);
  EXPECT_EQ(take_captures(), 2 * 3 + 5 + 2 * 3);
  const auto serve_streams = [](scheduler::ModelAgent& from, const std::vector<int>& lengths) {
    AgentDriver driver(from);
    std::vector<const DrivenStream*> streams;
    for (const int length : lengths) {
      streams.push_back(&driver.generate(prompt_of(1, length), 4, params_of(length)));
    }
    driver.run();
    Results results;
    for (const DrivenStream* stream : streams) results.push_back(stream->results);
    return results;
  };
  for (const int length : {2, 40, 65}) {
    (void)take_calls();
    const Results results = serve_streams(*agent, {length});
    EXPECT_EQ(take_calls().graphs, 4) << length;  // the prompt, and three decodes
    expect_same_bits(results, serve_streams(*plain, {length}));
  }
  EXPECT_EQ(take_captures(), 0);
  // Prompts together are another shape, but not their decodes.
  (void)take_calls();
  const Results results = serve_streams(*agent, {5, 3, 9});
  EXPECT_EQ(take_calls().graphs, 3);
  expect_same_bits(results, serve_streams(*plain, {5, 3, 9}));
}

TEST_F(GraphsAtLoadTest, AModelIsLoadedWhereNoneCanBeHad) {
  const agent::AgentOptions options = options_of_server();
  const auto expected = serve_at_once(*make_plain(options), {40});
  device_counts.refused = 1;
  device_counts.refusal = kernels::DeviceError::Kind::kOutOfMemory;
  const auto agent = make(options);
  EXPECT_EQ(take_captures(), 1);  // it is not tried for all shapes
  expect_same_bits(serve_at_once(*agent, {40}), expected);
  EXPECT_EQ(take_calls().graphs, 0);
}

TEST_F(GraphsAtLoadTest, ADeviceThatIsLostThenIsReported) {
  device_counts.refused = 1;
  device_counts.refusal = kernels::DeviceError::Kind::kSticky;
  agent::AgentOptions options = options_of_server();
  std::string reason;
  options.on_device_gone = [&](const std::string& text) { reason = text; };
  EXPECT_FALSE(agent::make_agent(options, nullptr).ok());
  EXPECT_EQ(reason, "refused");
}

TEST_F(GraphsAtLoadTest, TimeEndsIt) {
  agent::AgentOptions options = options_of_server();
  options.debug.graphs_at_load_ms = 1;
  const auto agent = make(options);
  const int num_captures = take_captures();
  EXPECT_GE(num_captures, 2);
  EXPECT_EQ(num_captures % 2, 0) << "decodes come first, and none is left with one turn's graph";
  EXPECT_LT(num_captures, 2 * 3 + 5 + 2 * 3);
}

// Steps of more tokens than graphs have.
TEST_F(GraphsAtLoadTest, ALongPromptIsNone) {
  agent::AgentOptions options = options_of_case({.folder = "checkpoints/untied-f32"});
  const auto agent = make(options);
  for (int i = 0; i < 2; ++i) (void)serve_at_once(*agent, {257});
  EXPECT_EQ(take_captures(), 0);
}

}  // namespace
}  // namespace lmtp
