// The agent of a device: its whole way from the checkpoint to the tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent_driver.h"
#include "bit_cases.h"
#include "device_under_test.h"
#include "kernels/norm.h"
#include "lmtp/agent/model_memory.h"
#include "source_dir.h"

namespace lmtp {
namespace {

using kernels::WeightType;
using scheduler::TokenResult;
using testing::AgentDriver;
using testing::DrivenStream;
using testing::expect_same_bits;
using testing::params_of;
using testing::prompt_of;

// On an emulated device that defers all work until it is waited for.
class LazyCudaAgentTest : public ::testing::Test {
 protected:
  void SetUp() override { testing::set_lazy_device(true); }
  void TearDown() override { testing::set_lazy_device(false); }
};

using KvType = std::optional<kernels::ElementType>;

std::unique_ptr<scheduler::ModelAgent> load(const std::string& folder, WeightType type,
                                            KvType kv_cache_type = {}) {
  return testing::load_agent(testing::folder_source(testing::goldens() + folder), 2, type,
                             &testing::device_under_test(), kv_cache_type);
}

// Of weights, and of keys and values.
using Types = std::pair<WeightType, KvType>;
class CudaTypesTest : public ::testing::TestWithParam<Types> {};

INSTANTIATE_TEST_SUITE_P(Types, CudaTypesTest,
                         ::testing::Values(Types{WeightType::kBF16, {}},
                                           Types{WeightType::kInt8, {}},
                                           Types{WeightType::kInt4, {}},
                                           Types{WeightType::kBF16, kernels::ElementType::kE4M3}));

TEST_P(CudaTypesTest, ChunksOtherStreamsAndTheOrderOfBlocksDoNotMatter) {
  const auto agent = load("families/llama3-tied", GetParam().first, GetParam().second);
  const auto alone = [&](int number, int chunk) {
    AgentDriver driver(*agent);
    const DrivenStream& stream =
        driver.generate(prompt_of(number, 20 + 9 * number), 4, params_of(number), chunk);
    driver.run();
    return stream.results;
  };
  std::vector<std::vector<TokenResult>> expected;
  for (int number = 0; number < 4; ++number) {
    expected.push_back(alone(number, testing::kTestBatchedTokens));
  }
  expect_same_bits(alone(3, 7), expected[3]);
  testing::set_thread_order(11);
  AgentDriver driver(*agent);
  std::vector<const DrivenStream*> streams;
  for (int number = 0; number < 4; ++number) {
    streams.push_back(
        &driver.generate(prompt_of(number, 20 + 9 * number), 4, params_of(number), 5 + number));
  }
  driver.run();
  testing::set_thread_order(0);
  for (std::size_t number = 0; number < streams.size(); ++number) {
    SCOPED_TRACE(number);
    expect_same_bits(streams[number]->results, expected[number]);
  }
}

// The first step of a shape runs by itself, the second is captured; whatever ran, the bits are the
// same, and steps of other rows or with new memory do not disturb a graph.
TEST(CudaAgentTest, GraphsGiveTheSameBits) {
  const auto agent = load("checkpoints/untied-f32", WeightType::kBF16);
  const auto run = [&](int num_streams) {
    AgentDriver driver(*agent);
    std::vector<const DrivenStream*> streams;
    for (int number = 0; number < num_streams; ++number) {
      streams.push_back(&driver.generate(prompt_of(number, 3 + number), 4, params_of(number)));
    }
    driver.run();
    std::vector<std::vector<TokenResult>> results;
    for (const DrivenStream* stream : streams) results.push_back(stream->results);
    return results;
  };
  (void)testing::take_num_graph_launches();
  const auto three = run(3);                         // scratch memory grows with its prompts
  EXPECT_EQ(testing::take_num_graph_launches(), 2);  // of three decode steps
  const auto first = run(1);
  EXPECT_EQ(testing::take_num_graph_launches(), 2);
  const auto three_again = run(3);
  for (std::size_t number = 0; number < three.size(); ++number) {
    expect_same_bits(three_again[number], three[number]);
  }
  const auto again = run(1);
  EXPECT_EQ(testing::take_num_graph_launches(), 4 + 4);  // the prompts' steps, too
  expect_same_bits(again[0], first[0]);
  expect_same_bits(three[0], first[0]);
}

// A step whose ids come from the records of the step before, which is not finished: with and
// without graphs, alone and beside streams that end at other times.
void expect_same_bits_ahead() {
  const auto agent = load("checkpoints/untied-f32", WeightType::kBF16);
  ASSERT_TRUE(agent->runs_ahead());
  constexpr int kNumStreams = 5;
  const auto params = [](int number) {
    SamplingParams p = params_of(number);
    p.repetition_penalty = 1.0F;
    return p;
  };
  std::vector<std::vector<TokenResult>> expected;
  for (int number = 0; number < kNumStreams; ++number) {
    AgentDriver driver(*agent);
    const DrivenStream& stream =
        driver.generate(prompt_of(number, 3 + 4 * number), 3 + 4 * number, params(number));
    driver.run();
    expected.push_back(stream.results);
  }
  for (const int first : {0, 3}) {
    AgentDriver driver(*agent);
    std::vector<const DrivenStream*> streams;
    for (int number = first; number < kNumStreams; ++number) {
      streams.push_back(
          &driver.generate(prompt_of(number, 3 + 4 * number), 3 + 4 * number, params(number)));
    }
    driver.run_ahead();
    for (int number = first; number < kNumStreams; ++number) {
      SCOPED_TRACE(number);
      expect_same_bits(streams[static_cast<std::size_t>(number - first)]->results,
                       expected[static_cast<std::size_t>(number)]);
    }
  }
}

TEST(CudaAgentTest, StepsAheadGiveTheSameBits) { expect_same_bits_ahead(); }
TEST_F(LazyCudaAgentTest, StepsAheadGiveTheSameBits) { expect_same_bits_ahead(); }

TEST(CudaAgentTest, ARowWithoutNumbersFailsAlone) {
  const auto agent = load("checkpoints/untied-f32", WeightType::kF32);
  auto bias = std::make_shared<LogitBias>();
  bias->ids = {3, 1 << 20};
  bias->values = {NAN, 1.0F};
  testing::DrivenSequence sequences[2];
  scheduler::StepPlan plan;
  for (int i = 0; i < 2; ++i) {
    sequences[i].tokens = {1, 2, 3};
    sequences[i].num_prompt = 3;
    sequences[i].blocks = {1 + i};
    if (i == 0) sequences[i].params.logit_bias = bias;
    plan.changes.started.push_back(testing::start_of(sequences[i], i));
    plan.rows.push_back({.slot = i, .first_position = 0, .num_tokens = 3, .num_logits = 1});
  }
  plan.num_tokens = 6;
  plan.num_logits = 2;
  const auto result = agent->execute(plan);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_TRUE(result->rows[0].error.has_value());
  EXPECT_FALSE(result->rows[1].error.has_value());
  EXPECT_TRUE(std::isfinite(result->rows[1].tokens[0].logprob));
}

// The plan of a first step of sequences, and the one behind it.
scheduler::StepPlan first_plan(const std::vector<testing::DrivenSequence>& sequences) {
  scheduler::StepPlan plan;
  for (const testing::DrivenSequence& sequence : sequences) {
    const auto slot = static_cast<int>(plan.rows.size());
    plan.changes.started.push_back(testing::start_of(sequence, slot));
    plan.rows.push_back(
        {.slot = slot, .first_position = 0, .num_tokens = sequence.length(), .num_logits = 1});
    plan.num_tokens += sequence.length();
    ++plan.num_logits;
  }
  return plan;
}
scheduler::StepPlan plan_behind(const scheduler::StepPlan& first) {
  scheduler::StepPlan plan;
  for (const scheduler::PlanRow& row : first.rows) {
    plan.rows.push_back({.slot = row.slot,
                         .first_position = row.num_tokens,
                         .num_tokens = 1,
                         .num_logits = 1,
                         .input_row = plan.num_tokens});
    ++plan.num_tokens;
    ++plan.num_logits;
  }
  return plan;
}

std::vector<testing::DrivenSequence> sequences_of_two(int count) {
  std::vector<testing::DrivenSequence> sequences(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    testing::DrivenSequence& sequence = sequences[static_cast<std::size_t>(i)];
    sequence.tokens = {1 + i % 7, 2};
    sequence.num_prompt = 2;
    sequence.blocks = {1 + i};
  }
  return sequences;
}

TEST_F(LazyCudaAgentTest, AStepBehindARowWithoutNumbersRunsForTheOthers) {
  const auto agent = load("checkpoints/untied-f32", WeightType::kF32);
  const auto run = [&](bool spoiled) {
    auto sequences = sequences_of_two(2);
    if (spoiled) {
      auto bias = std::make_shared<LogitBias>();
      bias->ids = {3};
      bias->values = {NAN};
      sequences[0].params.logit_bias = bias;
    }
    const auto plan = first_plan(sequences);
    EXPECT_TRUE(agent->start(plan));
    EXPECT_TRUE(agent->start(plan_behind(plan)));
    const auto first = agent->collect();
    const auto second = agent->collect();
    EXPECT_TRUE(first.ok() && second.ok());
    EXPECT_EQ(first->rows[0].error.has_value(), spoiled);
    EXPECT_FALSE(second->rows[1].error.has_value());
    return std::vector<TokenResult>{first->rows[1].tokens[0], second->rows[1].tokens[0]};
  };
  expect_same_bits(run(true), run(false));
}

TEST(CudaAgentTest, ItsInfoNamesDeviceAndType) {
  const auto agent = load("checkpoints/untied-f32", WeightType::kBF16);
  EXPECT_EQ(agent->info().device, "cuda:0");
  EXPECT_EQ(agent->info().dtype, "bfloat16");
  EXPECT_GT(agent->info().num_blocks, 2);
}

agent::AgentOptions options_of(const std::string& folder) {
  agent::AgentOptions options;
  options.source = testing::folder_source(testing::goldens() + folder);
  options.config = *model::load_model_config(options.source);
  options.cuda_device = 0;
  options.kv_cache_bytes = testing::kTestKvBytes;
  options.debug.backend = &testing::device_under_test();
  options.debug.graphs_at_load_ms = 0;
  return options;
}

// Its weights are made on the device; what they become there, device_store_test compares in bits.
TEST(CudaAgentTest, ARandomModelIsThatOfTheHost) {
  agent::AgentOptions options = options_of("checkpoints/untied-f32");
  options.source.kind = SourceKind::kRandom;
  options.source.seed = 7;
  options.num_threads = 2;
  const auto on_device = agent::make_agent(options, nullptr);
  ASSERT_TRUE(on_device.ok()) << on_device.error().message;
  options.cuda_device.reset();
  options.debug.backend = nullptr;
  const auto on_host = agent::make_agent(options, nullptr);
  ASSERT_TRUE(on_host.ok()) << on_host.error().message;
  const auto score = [](scheduler::ModelAgent& agent) {
    AgentDriver driver(agent);
    const DrivenStream& stream = driver.score(prompt_of(1, 5), prompt_of(2, 8));
    driver.run();
    return stream.results;
  };
  const auto results = score(**on_device);
  const auto expected = score(**on_host);
  ASSERT_EQ(results.size(), expected.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    EXPECT_NEAR(results[i].logprob, expected[i].logprob, 1e-4);
  }
}

TEST(CudaAgentTest, CodesAreCountedByTheWidthOfTheFile) {
  agent::AgentOptions options = options_of("quantized/gptq-w4-g32");
  options.batch.max_tokens = 1;
  options.config.mlp_size = 1 << 24;  // beside which other memory is little
  const auto bytes_as = [&](WeightType type) {
    options.weight_type = type;
    return static_cast<double>(agent::estimate_memory(options)->weights_bytes);
  };
  // 4 bits and two floats for 32 of them; widened in float32 alone.
  constexpr double kCodeBytes = 0.5 + 8.0 / 32;
  EXPECT_NEAR(bytes_as(WeightType::kBF16) / bytes_as(WeightType::kF32), kCodeBytes / 4, 0.02);
}

// Before memory is made for it, by unloading other models, as well as when it is loaded.
TEST(CudaAgentTest, HeadsThatAreTooWideAreRefusedAtOnce) {
  agent::AgentOptions options = options_of("checkpoints/untied-f32");
  options.config.head_dim = kernels::kDeviceHeadDimMax;
  EXPECT_TRUE(agent::estimate_memory(options).ok());
  options.config.head_dim += 1;
  const std::string reason =
      "this model's heads have 257 dimensions, and the CUDA kernels take 256 at most; serve it on "
      "the CPU";
  const auto memory = agent::estimate_memory(options);
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.error().message, reason);
  const auto agent = agent::make_agent(options, nullptr);
  ASSERT_FALSE(agent.ok());
  EXPECT_EQ(agent.error().message, reason);
  options.cuda_device.reset();
  EXPECT_TRUE(agent::estimate_memory(options).ok());
}

TEST(CudaAgentTest, RowsThatAreTooWideAreRefusedAtOnce) {
  agent::AgentOptions options = options_of("checkpoints/untied-f32");
  options.config.hidden_size = kernels::kDeviceNormWidthMax + 64;
  const auto memory = agent::estimate_memory(options);
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.error().message,
            "this model's hidden size is 16448, and the CUDA kernels take 16384 at most; serve it "
            "on the CPU");
  EXPECT_FALSE(agent::make_agent(options, nullptr).ok());
  options.cuda_device.reset();
  EXPECT_TRUE(agent::estimate_memory(options).ok());
}

// The device under test, lost until it is reset; and then, where `gone`, still.
agent::AgentOptions options_of_lost_device(bool gone) {
  static bool is_lost = false;
  static kernels::DeviceApi api;
  static kernels::Backend backend;
  is_lost = true;
  api = *testing::device_under_test().device;
  api.memory = [] {
    if (is_lost) throw kernels::DeviceError(kernels::DeviceError::Kind::kSticky, "it is lost");
    return testing::device_under_test().device->memory();
  };
  api.reset = [] { is_lost = false; };
  if (gone) {
    api.reset = [] { throw kernels::DeviceError(kernels::DeviceError::Kind::kGone, "it is gone"); };
  }
  backend = testing::device_under_test();
  backend.device = &api;
  agent::AgentOptions options = options_of("checkpoints/untied-f32");
  options.debug.backend = &backend;
  return options;
}

TEST(CudaAgentTest, ALostDeviceIsReportedOnlyIfItStaysLost) {
  for (const bool gone : {false, true}) {
    agent::AgentOptions options = options_of_lost_device(gone);
    std::vector<std::string> reasons;
    options.on_device_gone = [&](const std::string& reason) { reasons.push_back(reason); };
    const auto agent = agent::make_agent(options, nullptr);
    EXPECT_EQ(agent.ok(), !gone);
    EXPECT_EQ(reasons, gone ? std::vector<std::string>{"it is gone"} : std::vector<std::string>{});
  }
}

TEST(CudaAgentTest, ADeviceLostWhileAModelIsLoadedIsReportedToo) {
  static kernels::DeviceApi api;
  static kernels::Backend backend;
  api = *testing::device_under_test().device;
  api.allocate_pinned = [](std::size_t) -> void* {
    throw kernels::DeviceError(kernels::DeviceError::Kind::kSticky, "it is lost");
  };
  backend = testing::device_under_test();
  backend.device = &api;
  agent::AgentOptions options = options_of("checkpoints/untied-f32");
  options.debug.backend = &backend;
  std::vector<std::string> reasons;
  options.on_device_gone = [&](const std::string& reason) { reasons.push_back(reason); };
  EXPECT_FALSE(agent::make_agent(options, nullptr).ok());
  EXPECT_EQ(reasons, std::vector<std::string>{"it is lost"});
}

// On the device under test, with other functions of it.
std::unique_ptr<scheduler::ModelAgent> load_on(const kernels::DeviceApi& other) {
  static kernels::DeviceApi api;
  static kernels::Backend backend;
  api = other;
  backend = testing::device_under_test();
  backend.device = &api;
  agent::AgentOptions options = options_of("checkpoints/untied-f32");
  options.debug.backend = &backend;
  auto agent = agent::make_agent(options, nullptr);
  EXPECT_TRUE(agent.ok()) << agent.error().message;
  return std::move(*agent);
}

TEST_F(LazyCudaAgentTest, AStepAheadThatFailsFailsAlone) {
  static bool is_refused = false;
  kernels::DeviceApi api = *testing::device_under_test().device;
  api.record = [](void* event, void* stream) {
    if (is_refused) throw kernels::DeviceError(kernels::DeviceError::Kind::kFailed, "refused");
    testing::device_under_test().device->record(event, stream);
  };
  const auto agent = load_on(api);
  const auto sequences = sequences_of_two(65);
  const auto plan = first_plan(sequences);
  std::vector<TokenResult> results[2];
  for (const bool refused : {true, false}) {
    ASSERT_TRUE(agent->start(plan));
    is_refused = refused;
    EXPECT_EQ(agent->start(plan_behind(plan)).ok(), !refused);
    is_refused = false;
    const auto first = agent->collect();
    ASSERT_TRUE(first.ok()) << first.error().message;
    results[refused ? 0 : 1] = {first->rows[64].tokens[0]};
    if (refused) continue;
    const auto second = agent->collect();
    ASSERT_TRUE(second.ok()) << second.error().message;
    EXPECT_FALSE(second->rows[64].error.has_value());
  }
  expect_same_bits(results[0], results[1]);
}

// Memory for the worst that clients can send is allocated at the start: one client's bias cannot
// fail the step of the others.
TEST(CudaAgentTest, EveryRowMayHaveABiasOfItsOwnOfTheWholeVocabulary) {
  static bool is_full = false;
  kernels::DeviceApi api = *testing::device_under_test().device;
  api.allocate = [](std::size_t num_bytes) {
    if (is_full) throw kernels::DeviceError(kernels::DeviceError::Kind::kOutOfMemory, "full");
    return testing::device_under_test().device->allocate(num_bytes);
  };
  const auto agent = load_on(api);
  const int vocab_size = options_of("checkpoints/untied-f32").config.vocab_size;
  constexpr int kRows = 256;
  const scheduler::StepPlan first = first_plan(sequences_of_two(kRows));
  ASSERT_TRUE(agent->execute(first).ok());
  scheduler::StepPlan plan = plan_behind(first);
  for (int i = 0; i < kRows; ++i) {
    plan.rows[static_cast<std::size_t>(i)].input_row = -1;
    auto bias = std::make_shared<LogitBias>();
    for (TokenId id = 0; id < vocab_size; ++id) {
      bias->ids.push_back(id);
      bias->values.push_back(id == i % vocab_size ? 1000.0F : 0.0F);
    }
    plan.changes.biases.push_back({i, bias});
  }
  is_full = true;
  const auto biased = agent->execute(plan);
  is_full = false;
  ASSERT_TRUE(biased.ok()) << biased.error().message;
  for (int i = 0; i < kRows; ++i) {
    EXPECT_EQ(biased->rows[static_cast<std::size_t>(i)].tokens.at(0).token, i % vocab_size);
  }
}

TEST(CudaAgentTest, ADeviceThatIsFullSaysSo) {
  agent::AgentOptions options = options_of("checkpoints/untied-f32");
  options.kv_cache_bytes = std::int64_t{1} << 40;
  const auto agent = agent::make_agent(options, nullptr);
  ASSERT_FALSE(agent.ok());
  EXPECT_NE(agent.error().message.find("memory of cuda:0 is full"), std::string::npos)
      << agent.error().message;
}

}  // namespace
}  // namespace lmtp
