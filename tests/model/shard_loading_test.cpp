// What a rank loads of a weight: which elements, and that it reads no others.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "layers/load.h"
#include "lmtp/model/local_ranks.h"
#include "tiny_families.h"

namespace lmtp {
namespace {

using kernels::WeightOrder;
using kernels::WeightType;
using model::Linear;
using model::Shard;
using model::Split;
using model::WeightLoader;
using model::WeightStack;
using testing::TinyFamily;
using testing::TinySource;

// f32 tensors whose element i is 1000 * (the last digit of the name) + i, negative in a bias.
class CountedSource : public model::TensorSource {
 public:
  Result<model::SourceTensor> tensor(const model::TensorSpec& spec) override {
    const bool is_bias = spec.shape.size() == 1;
    const auto digit = static_cast<float>(spec.name[spec.name.find_first_of("123")] - '0');
    shapes[spec.name] = spec.shape;
    return model::SourceTensor{
        .type = kernels::ElementType::kF32,
        .read = [=, this](std::uint64_t first, std::size_t count, void* to) -> Result<void> {
          num_read += static_cast<std::int64_t>(count / sizeof(float));
          for (std::size_t i = 0; i < count / sizeof(float); ++i) {
            const auto index = static_cast<float>(first / sizeof(float) + i);
            const float value = (is_bias ? -1.0F : 1.0F) * (1000.0F * digit + index);
            std::memcpy(static_cast<char*>(to) + i * sizeof(float), &value, sizeof(float));
          }
          return {};
        }};
  }

  std::map<std::string, std::vector<std::int64_t>> shapes;
  std::int64_t num_read = 0;
};

// Notes biases, and hands weights to the host's store.
class NotingStore : public model::WeightStore {
 public:
  explicit NotingStore(WeightType type) : store_(model::make_host_store(pool_, type)) {}
  const kernels::Backend& backend() const override { return store_->backend(); }
  Result<model::PackedWeight> pack(const model::StoredWeight& source) override {
    return store_->pack(source);
  }
  model::PlainWeight keep(std::span<const float> values) override {
    bias.assign(values.begin(), values.end());
    return store_->keep(values);
  }

  std::vector<float> bias;

 private:
  kernels::WorkerPool pool_{1};
  std::unique_ptr<model::WeightStore> store_;
};

// A loaded share as its elements [n][k], with its bias.
struct Share {
  std::vector<std::vector<float>> rows = {};
  std::vector<float> bias = {};
  std::int64_t num_read = 0;
  std::map<std::string, std::vector<std::int64_t>> shapes = {};
};

Share load(const WeightStack& stack, Shard shard, WeightType type = WeightType::kF32) {
  CountedSource source;
  NotingStore store(type);
  WeightLoader loader(source, store, 0, nullptr, shard);
  const Linear linear = load_linear(loader, stack, true);
  EXPECT_FALSE(loader.error().has_value());
  Share share{.num_read = source.num_read, .shapes = source.shapes};
  share.bias = store.bias;
  for (std::int64_t n = 0; n < linear.num_outputs(); ++n) {
    share.rows.emplace_back();
    for (std::int64_t k = 0; k < linear.num_inputs(); ++k) {
      share.rows.back().push_back(kernels::packed_element(linear.weight(), n, k));
    }
  }
  return share;
}

using Rows = std::vector<std::vector<float>>;
using Shape = std::vector<std::int64_t>;

TEST(ShardLoadingTest, OfStackedTensorsEachIsDividedByItself) {
  const WeightStack stack{.parts = {{"q1", {2}}, {"k2", {1}}}, .k = 3, .split = Split::kOutputs};
  const Share first = load(stack, {0, 2});
  EXPECT_EQ(first.rows, (Rows{{1000, 1001, 1002}, {1003, 1004, 1005}, {2000, 2001, 2002}}));
  EXPECT_EQ(first.bias, (std::vector<float>{-1000, -1001, -2000}));
  const Share second = load(stack, {1, 2});
  EXPECT_EQ(second.rows, (Rows{{1006, 1007, 1008}, {1009, 1010, 1011}, {2003, 2004, 2005}}));
  EXPECT_EQ(second.bias, (std::vector<float>{-1002, -1003, -2001}));
  for (const Share* share : {&first, &second}) {
    EXPECT_EQ(share->shapes.at("q1.weight"), (Shape{4, 3}));
    EXPECT_EQ(share->shapes.at("k2.bias"), (Shape{2}));
    EXPECT_EQ(share->num_read, 9 + 3);
  }
}

TEST(ShardLoadingTest, OfOneTensorOfAllExpertsOneIsRead) {
  WeightStack stack{.parts = {{.name = "up1", .sections = {1, 1}, .num_slices = 3, .slice = 2}},
                    .k = 2,
                    .split = Split::kOutputs};
  const Share second = load(stack, {1, 2});
  EXPECT_EQ(second.rows, (Rows{{1018, 1019}, {1022, 1023}}));
  EXPECT_EQ(second.bias, (std::vector<float>{1009, 1011}));
  EXPECT_EQ(second.shapes.at("up1.weight"), (Shape{3, 4, 2}));
  EXPECT_EQ(second.shapes.at("up1.bias"), (Shape{3, 4}));
  EXPECT_EQ(second.num_read, 4 + 2);
  stack.parts[0].sections = {2};
  stack.split = Split::kInputs;
  stack.order = WeightOrder::kInputsByOutputs;
  const Share first = load(stack, {0, 2});
  EXPECT_EQ(first.rows, (Rows{{1016, 1018}, {1017, 1019}}));
  EXPECT_EQ(first.shapes.at("up1.weight"), (Shape{3, 4, 2}));
}

TEST(ShardLoadingTest, OfOneTensorEachSectionIsDividedByItself) {
  const WeightStack stack{.parts = {{"qkv1", {2, 1, 1}}}, .k = 1, .split = Split::kOutputs};
  EXPECT_EQ(load(stack, {0, 2}).rows, (Rows{{1000}, {1001}, {1004}, {1006}}));
  const Share second = load(stack, {1, 2});
  EXPECT_EQ(second.rows, (Rows{{1002}, {1003}, {1005}, {1007}}));
  EXPECT_EQ(second.bias, (std::vector<float>{-1002, -1003, -1005, -1007}));
  EXPECT_EQ(second.num_read, 4 + 4);
}

TEST(ShardLoadingTest, RanksHaveTheSameShareOfASectionThatIsSmaller) {
  const WeightStack stack{
      .parts = {{"qkv1", {2, 1, 1}, {1, 2, 2}}}, .k = 1, .split = Split::kOutputs};
  EXPECT_EQ(load(stack, {0, 4}).rows, (Rows{{1000}, {1001}, {1008}, {1010}}));
  EXPECT_EQ(load(stack, {1, 4}).rows, (Rows{{1002}, {1003}, {1008}, {1010}}));
  const Share last = load(stack, {3, 4});
  EXPECT_EQ(last.rows, (Rows{{1006}, {1007}, {1009}, {1011}}));
  EXPECT_EQ(last.bias, (std::vector<float>{-1006, -1007, -1009, -1011}));
  EXPECT_EQ(last.shapes.at("qkv1.weight"), (Shape{12, 1}));
  EXPECT_EQ(last.num_read, 4 + 4);
}

TEST(ShardLoadingTest, APermutationIsOfTheRanksOutputs) {
  WeightStack stack{.parts = {{"qkv1", {4}}}, .k = 1, .split = Split::kOutputs};
  stack.permutation = {3, 1, 0, 2};
  const Share share = load(stack, {1, 2});
  EXPECT_EQ(share.rows, (Rows{{1007}, {1005}, {1004}, {1006}}));
  EXPECT_EQ(share.bias, (std::vector<float>{-1007, -1005, -1004, -1006}));
}

TEST(ShardLoadingTest, OfInputsTheFirstRankHasTheBias) {
  const WeightStack stack{.parts = {{"o1", {2}}}, .k = 3, .split = Split::kInputs};
  const Share first = load(stack, {0, 2});
  EXPECT_EQ(first.rows, (Rows{{1000, 1001, 1002}, {1006, 1007, 1008}}));
  EXPECT_EQ(first.bias, (std::vector<float>{-1000, -1001}));
  const Share second = load(stack, {1, 2});
  EXPECT_EQ(second.rows, (Rows{{1003, 1004, 1005}, {1009, 1010, 1011}}));
  EXPECT_TRUE(second.bias.empty());
  EXPECT_EQ(second.shapes.at("o1.weight"), (Shape{2, 6}));
  EXPECT_EQ(second.num_read, 6);
}

TEST(ShardLoadingTest, WeightsStoredInputsByOutputsAreDividedTheSameWay) {
  WeightStack stack{.parts = {{"c1", {1, 2}}},
                    .k = 2,
                    .split = Split::kOutputs,
                    .order = WeightOrder::kInputsByOutputs};
  const Share outputs = load(stack, {1, 2});  // of [2, 6]: columns 1, 4 and 5
  EXPECT_EQ(outputs.rows, (Rows{{1001, 1007}, {1004, 1010}, {1005, 1011}}));
  EXPECT_EQ(outputs.shapes.at("c1.weight"), (Shape{2, 6}));
  EXPECT_EQ(outputs.num_read, 6 + 3);
  stack.split = Split::kInputs;
  const Share inputs = load(stack, {1, 2});  // of [4, 3]: rows 2 and 3
  EXPECT_EQ(inputs.rows, (Rows{{1006, 1009}, {1007, 1010}, {1008, 1011}}));
  EXPECT_EQ(inputs.shapes.at("c1.weight"), (Shape{4, 3}));
  EXPECT_EQ(inputs.num_read, 6);
}

TEST(ShardLoadingTest, WhatIsNotSplitEveryRankHas) {
  const WeightStack stack{.parts = {{"e1", {2}}}, .k = 2};
  for (const int rank : {0, 1, 2}) {
    const Share share = load(stack, {rank, 3});
    EXPECT_EQ(share.rows, (Rows{{1000, 1001}, {1002, 1003}}));
    EXPECT_EQ(share.bias, (std::vector<float>{-1000, -1001}));
  }
}

TEST(ShardLoadingTest, Int8HasAScaleForEachOutputOfTheShare) {
  WeightStack stack{.parts = {{"q1", {40}}}, .k = 4, .split = Split::kOutputs};
  const Share outputs = load(stack, {1, 2}, WeightType::kInt8);
  stack.parts = {{"q1", {80}}};
  const Share whole = load(stack, {}, WeightType::kInt8);
  EXPECT_EQ(outputs.rows, (Rows{whole.rows.begin() + 40, whole.rows.end()}));
  stack = {.parts = {{"o1", {3}}}, .k = 5, .split = Split::kInputs};
  const Share inputs = load(stack, {1, 2}, WeightType::kInt8);
  for (std::size_t n = 0; n < 3; ++n) {
    const auto first = static_cast<float>(1000 + n * 10 + 5);
    EXPECT_FLOAT_EQ(inputs.rows[n][4],
                    first + 4);  // the largest is exact: the scale is the share's
    for (std::size_t k = 0; k < 5; ++k) {
      EXPECT_NEAR(inputs.rows[n][k], first + static_cast<float>(k), 0.5 * (first + 4) / 127);
    }
  }
}

// The bytes that a rank reads of each tensor.
std::map<std::string, std::int64_t> bytes_read(const model::ModelConfig& config,
                                               model::Communicator& communicator,
                                               std::map<std::string, std::int64_t>* whole) {
  TinySource source;
  kernels::WorkerPool pool(1);
  const auto store = model::make_host_store(pool, WeightType::kF32);
  WeightLoader loader(source, *store, 0, nullptr, communicator.shard());
  const auto made =
      model::make_causal_lm(config, loader, {.max_tokens = 1, .communicator = communicator});
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
  *whole = source.whole_bytes;
  return source.bytes_read;
}

bool has_any(const std::string& name, const std::vector<std::string>& parts) {
  return std::ranges::any_of(
      parts, [&](const std::string& part) { return name.find(part) != std::string::npos; });
}

class ModelShareTest : public ::testing::TestWithParam<TinyFamily> {};
INSTANTIATE_TEST_SUITE_P(Families, ModelShareTest, ::testing::ValuesIn(testing::kTinyFamilies),
                         [](const auto& which) { return which.param.name; });

// By the names of the tensors: what is divided is read once by all ranks together, in equal shares,
// the biases of sums by the first rank, tables of the vocabulary by rows, and all else by every
// rank.
TEST_P(ModelShareTest, ARankReadsItsShareAlone) {
  const std::vector<std::string> by_outputs = {
      "c_attn",          "c_fc",          "q_proj",  "k_proj", "v_proj",
      "qkv_proj",        "gate_proj",     "up_proj", "fc1",    "gate_up_",
      "query_key_value", "dense_h_to_4h", "fc_in",   "sinks",  "input_linear"};
  const std::vector<std::string> by_inputs = {"c_proj",          "o_proj",        "down_proj",
                                              "out_proj",        "fc2",           "fc_out",
                                              "attention.dense", "dense_4h_to_h", "output_linear"};
  const auto config = testing::config_of(GetParam());
  for (const int num_ranks : {1, 2, 4}) {
    model::LocalRanks ranks(num_ranks);
    for (int rank = 0; rank < num_ranks; ++rank) {
      std::map<std::string, std::int64_t> whole;
      auto read = bytes_read(config, ranks[rank], &whole);
      ASSERT_GT(whole.size(), 10U);
      std::int64_t num_divided = 0;
      for (const auto& [name, bytes] : whole) {
        SCOPED_TRACE(name);
        const bool is_bias = name.ends_with(".bias") || name.ends_with("_bias");
        const bool is_table =
            has_any(name, {"wte", "embed_tokens", "embed_in", "embed_out", "word_emb", "head"});
        if (name.find("project_") == std::string::npos && has_any(name, by_inputs)) {
          EXPECT_EQ(read[name], is_bias ? (rank == 0 ? bytes : 0) : bytes / num_ranks);
          ++num_divided;
        } else if (has_any(name, by_outputs)) {
          EXPECT_EQ(read[name], bytes / num_ranks);
          ++num_divided;
        } else if (is_table && !is_bias) {
          const auto rows = model::vocab_share(config.vocab_size, {rank, num_ranks}).count;
          EXPECT_EQ(read[name], bytes / config.vocab_size * rows);
        } else {
          EXPECT_EQ(read[name], bytes);
        }
      }
      EXPECT_GE(num_divided, 4 * config.num_layers);
    }
  }
}

// In a model whose weights are mostly those of its layers, as all of some size are.
TEST(ModelBytesTest, ARankReadsAboutItsPartOfAllBytes) {
  const TinyFamily family = {"wide", R"({"model_type": "llama", "vocab_size": 96,
      "max_position_embeddings": 64, "hidden_size": 256, "intermediate_size": 512,
      "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 4})"};
  const auto config = testing::config_of(family);
  const auto total = [&](model::Communicator& communicator) {
    std::map<std::string, std::int64_t> whole;
    std::int64_t sum = 0;
    for (const auto& [name, bytes] : bytes_read(config, communicator, &whole)) sum += bytes;
    return static_cast<double>(sum);
  };
  model::SingleRank single;
  const double all = total(single);
  for (const int num_ranks : {2, 4}) {
    model::LocalRanks ranks(num_ranks);
    for (int rank = 0; rank < num_ranks; ++rank) {
      const double share = total(ranks[rank]) / all;
      EXPECT_GT(share, 1.0 / num_ranks);
      EXPECT_LT(share, 1.0 / num_ranks + 0.03);
    }
  }
}

}  // namespace
}  // namespace lmtp
