// Adapters through an engine: what they give is what transformers and peft give, and what a stream
// gets does not depend on which adapters others have.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agent_driver.h"
#include "golden.h"
#include "lmtp/agent/adapter.h"
#include "lmtp/engine/engine.h"
#include "lmtp/model/kv_cache.h"
#include "recording_sink.h"
#include "source_dir.h"
#include "temp_folder.h"

namespace lmtp {
namespace {

using engine::Engine;
using testing::RecordingSink;

constexpr int kRankMax = 64;

struct Model {
  agent::AgentOptions options;
  std::unique_ptr<Engine> engine;
};

// kv_blocks: of the KV cache; 0: enough for all.
Model load(const std::string& folder, kernels::WeightType type = kernels::WeightType::kF32,
           int kv_blocks = 0) {
  Model model;
  model.options.source = testing::folder_source(testing::goldens() + folder);
  model.options.config = *model::load_model_config(model.options.source);
  model.options.weight_type = type;
  const auto specs = model::kv_specs(model.options.config);
  model.options.kv_cache_bytes =
      kv_blocks == 0 ? std::int64_t{1} << 24
                     : kv_blocks * model::kv_block_bytes(specs, agent::kv_type(model.options));
  engine::ModelLimits limits;
  limits.vocab_size = model.options.config.vocab_size;
  limits.context_length = model.options.config.context_length;
  engine::EngineOptions options;
  options.debug.check_invariants = true;
  auto made = agent::make_agent(model.options, nullptr);
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
  model.engine = std::make_unique<Engine>(std::move(*made), limits, options);
  return model;
}

std::shared_ptr<const Adapter> read(const Model& model, const std::string& folder) {
  auto adapter = agent::read_adapter(model.options, {"a", folder}, {.rank_max = kRankMax});
  EXPECT_TRUE(adapter.ok()) << (adapter.ok() ? "" : adapter.error().message);
  return adapter.ok() ? *adapter : nullptr;
}

Request request_for(std::shared_ptr<const Adapter> adapter, std::vector<TokenId> prompt) {
  Request request;
  request.adapter = std::move(adapter);
  request.prompt = std::move(prompt);
  request.params.temperature = 0.0F;
  request.params.ignore_eos = true;
  return request;
}

// All together; the outcomes in their order.
std::vector<RecordingSink::Stream> run(const Model& model, std::vector<Request> requests) {
  const auto sink = std::make_shared<RecordingSink>();
  StreamId id = 0;
  for (Request& request : requests) {
    request.key = {1, ++id};
    request.sink = sink;
    EXPECT_TRUE(model.engine->instance().submit(std::move(request)));
  }
  std::vector<RecordingSink::Stream> streams;
  for (StreamId each = 1; each <= id; ++each) streams.push_back(sink->wait_done(each));
  return streams;
}

struct Case {
  const char* adapter;
  const char* base;
};

void PrintTo(const Case& one, std::ostream* to) { *to << one.adapter; }

class AdapterGoldenTest : public ::testing::TestWithParam<Case> {};

TEST_P(AdapterGoldenTest, TokensAndLogprobsAreThoseOfTransformersAndPeft) {
  const std::string folder = testing::goldens() + "adapters/" + GetParam().adapter;
  const Model model = load(GetParam().base);
  const auto adapter = read(model, folder);
  ASSERT_NE(adapter, nullptr);
  const auto goldens = testing::read_goldens(folder + "/golden.json");
  ASSERT_EQ(goldens.size(), 3U);
  for (const testing::Golden& golden : goldens) {
    Request request = request_for(adapter, golden.prompt);
    if (golden.is_score) {
      request.kind = RequestKind::kScore;
      for (const testing::GoldenStep& step : golden.steps) request.scored.push_back(step.token);
    } else {
      request.params.max_tokens = static_cast<int>(golden.steps.size());
    }
    std::vector<Request> requests;
    requests.push_back(std::move(request));
    const auto stream = run(model, std::move(requests)).front();
    ASSERT_EQ(stream.error, "");
    ASSERT_EQ(stream.logprobs.size(), golden.steps.size()) << golden.name;
    for (std::size_t i = 0; i < golden.steps.size(); ++i) {
      ASSERT_EQ(stream.tokens[i], golden.steps[i].token) << golden.name << " " << i;
      ASSERT_NEAR(stream.logprobs[i], golden.steps[i].logprob, 1e-4F) << golden.name << " " << i;
    }
  }
}

constexpr Case kCases[] = {{"gpt2", "checkpoints/untied-f32"}, {"gpt-neox", "families/gpt-neox"},
                           {"llama", "families/llama"},        {"phi3", "families/phi3"},
                           {"qwen3", "families/qwen3"},        {"gemma2", "families/gemma2"},
                           {"cohere2", "families/cohere2"},    {"granite", "families/granite"},
                           {"demo", "../../models/demo"}};
INSTANTIATE_TEST_SUITE_P(Families, AdapterGoldenTest, ::testing::ValuesIn(kCases));

// peft's adapter with another scale.
void copy_scaled(const std::string& from, int alpha, const testing::TempFolder& to) {
  std::ifstream config(from + "/adapter_config.json");
  std::string text{std::istreambuf_iterator<char>(config), {}};
  const std::string key = "\"lora_alpha\": ";
  const std::size_t at = text.find(key) + key.size();
  text.replace(at, text.find(',', at) - at, std::to_string(alpha));
  to.write("adapter_config.json", text);
  std::filesystem::copy(from + "/adapter_model.safetensors",
                        to.path() + "/adapter_model.safetensors");
}

struct Mix {
  const char* adapter;
  const char* base;
  kernels::WeightType type;
  int kv_blocks;  // 0: all adapters fit at a time
};

void PrintTo(const Mix& one, std::ostream* to) {
  *to << one.adapter << " " << agent::dtype_name(one.type) << " " << one.kv_blocks;
}

class MixedAdaptersTest : public ::testing::TestWithParam<Mix> {};

// 12 adapters and the base in one batch: each gets the bits that it gets alone; the base those of a
// server without adapters.
TEST_P(MixedAdaptersTest, EachGetsTheBitsThatItGetsAlone) {
  constexpr int kAdapters = 12;
  const auto make = [] { return load(GetParam().base, GetParam().type, GetParam().kv_blocks); };
  const Model mixed = make();
  std::vector<std::shared_ptr<const Adapter>> adapters = {nullptr};
  for (int i = 0; i < kAdapters; ++i) {
    const testing::TempFolder folder;
    copy_scaled(testing::goldens() + "adapters/" + GetParam().adapter, i + 1, folder);
    adapters.push_back(read(mixed, folder.path()));
    ASSERT_NE(adapters.back(), nullptr);
  }
  const auto request_of = [&](std::size_t i) {
    // Many prompts begin alike: what the prefix cache has is of one adapter.
    std::vector<TokenId> prompt;
    for (int t = 0; t < 20 + static_cast<int>(i % 3); ++t) prompt.push_back(3 + t * 7 % 90);
    Request request = request_for(adapters[i % adapters.size()], std::move(prompt));
    request.params.max_tokens = 12;
    return request;
  };
  constexpr std::size_t kStreams = 26;
  std::vector<Request> all;
  for (std::size_t i = 0; i < kStreams; ++i) all.push_back(request_of(i));
  const auto together = run(mixed, std::move(all));
  const Model alone = make();
  for (std::size_t i = 0; i < kStreams; ++i) {
    std::vector<Request> one;
    one.push_back(request_of(i));
    const auto stream = run(alone, std::move(one)).front();
    ASSERT_EQ(stream.error, "");
    ASSERT_EQ(stream.tokens.size(), 12U);
    EXPECT_EQ(stream.tokens, together[i].tokens) << i;
    EXPECT_EQ(stream.logprobs, together[i].logprobs) << i;
    if (i > 0 && i < adapters.size()) {
      EXPECT_NE(stream.logprobs, together[0].logprobs) << i;
      EXPECT_NE(stream.logprobs, together[i - 1].logprobs) << i;
    }
  }
  const engine::EngineStats stats = mixed.engine->stats();
  EXPECT_EQ(stats.num_blocks_pinned, 0);
  EXPECT_EQ(stats.num_blocks_free + stats.num_blocks_evictable + stats.num_blocks_adapter,
            stats.agent.num_blocks - 1);
  EXPECT_GE(stats.num_adapter_loads, kAdapters);
  EXPECT_LE(stats.num_blocks_adapter, kAdapters * adapters[1]->num_blocks());
  if (GetParam().kv_blocks > 0) {
    EXPECT_LT(stats.num_blocks_adapter, kAdapters * adapters[1]->num_blocks());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Mixes, MixedAdaptersTest,
    ::testing::Values(Mix{"gpt2", "checkpoints/untied-f32", kernels::WeightType::kF32, 0},
                      Mix{"gpt2", "checkpoints/untied-f32", kernels::WeightType::kInt8, 0},
                      Mix{"gpt-neox", "families/gpt-neox", kernels::WeightType::kBF16, 0},
                      Mix{"gpt-neox", "families/gpt-neox", kernels::WeightType::kInt4, 0},
                      Mix{"phi3", "families/phi3", kernels::WeightType::kInt8, 0},
                      Mix{"phi3", "families/phi3", kernels::WeightType::kInt4, 0},
                      Mix{"llama", "families/llama", kernels::WeightType::kInt4, 40},
                      Mix{"llama", "families/llama", kernels::WeightType::kF32, 0},
                      Mix{"llama", "families/llama", kernels::WeightType::kF32, 40},
                      Mix{"llama", "families/llama", kernels::WeightType::kBF16, 40},
                      Mix{"gemma2", "families/gemma2", kernels::WeightType::kBF16, 0}));

struct Narrow {
  const char* adapter;  // of the family of this name
  kernels::WeightType type;
};

void PrintTo(const Narrow& one, std::ostream* to) {
  *to << one.adapter << " " << agent::dtype_name(one.type);
}

class NarrowBaseTest : public ::testing::TestWithParam<Narrow> {};

// The adapter stays as it is: what is lost is what the base loses without it, by the mean
// difference of log probabilities, and less than what the adapter changes. Fused and permuted
// matrices among them.
TEST_P(NarrowBaseTest, AnAdapterGivesWhatItGivesOverFloat32) {
  const std::string folder = testing::goldens() + "adapters/" + GetParam().adapter;
  const auto golden = testing::read_goldens(folder + "/golden.json").back();
  ASSERT_TRUE(golden.is_score);
  const auto scores = [&](kernels::WeightType type, bool has_adapter) {
    const Model model = load(std::string("families/") + GetParam().adapter, type);
    Request request = request_for(has_adapter ? read(model, folder) : nullptr, golden.prompt);
    request.kind = RequestKind::kScore;
    for (const testing::GoldenStep& step : golden.steps) request.scored.push_back(step.token);
    std::vector<Request> requests;
    requests.push_back(std::move(request));
    return run(model, std::move(requests)).front().logprobs;
  };
  const auto mean_difference = [](const std::vector<float>& a, const std::vector<float>& b) {
    double sum = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
    return sum / static_cast<double>(a.size());
  };
  const auto narrow = scores(GetParam().type, true);
  const auto wide = scores(kernels::WeightType::kF32, true);
  ASSERT_EQ(narrow.size(), golden.steps.size());
  ASSERT_EQ(wide.size(), golden.steps.size());
  const auto without = scores(kernels::WeightType::kF32, false);
  const double lost = mean_difference(narrow, wide);
  EXPECT_LT(lost, 2 * mean_difference(scores(GetParam().type, false), without));
  EXPECT_GT(mean_difference(wide, without), lost) << "else the bound says nothing";
}

INSTANTIATE_TEST_SUITE_P(Bases, NarrowBaseTest,
                         ::testing::Values(Narrow{"llama", kernels::WeightType::kInt8},
                                           Narrow{"llama", kernels::WeightType::kInt4},
                                           Narrow{"phi3", kernels::WeightType::kInt8},
                                           Narrow{"phi3", kernels::WeightType::kInt4},
                                           Narrow{"gpt-neox", kernels::WeightType::kInt8},
                                           Narrow{"gpt-neox", kernels::WeightType::kInt4}));

TEST(AdapterTest, ADeviceTakesNone) {
  agent::AgentOptions options;
  options.source = testing::folder_source(testing::goldens() + "families/llama");
  options.config = *model::load_model_config(options.source);
  options.cuda_device = 0;
  const auto read = agent::read_adapter(options, {"a", testing::goldens() + "adapters/llama"}, {});
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ErrorCode::kInvalid);
  EXPECT_EQ(read.error().message,
            "adapters are computed on CPUs alone so far; serve this model without --cuda");
}

TEST(AdapterTest, OneThatLeavesNoPlaceForAStreamIsRefused) {
  const Model model = load("families/llama", kernels::WeightType::kF32, 12);
  const auto adapter = read(model, testing::goldens() + "adapters/llama");
  ASSERT_GT(adapter->num_blocks(), 1);
  std::vector<Request> requests;
  requests.push_back(request_for(adapter, {1, 2, 3}));
  requests.push_back(request_for(nullptr, {1, 2, 3}));
  const auto streams = run(model, std::move(requests));
  EXPECT_NE(streams[0].error.find("give a larger --kv-cache"), std::string::npos)
      << streams[0].error;
  EXPECT_EQ(streams[1].error, "");
}

}  // namespace
}  // namespace lmtp
