// Mixtures of experts: what their configs and files may say.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "layers/load.h"
#include "lmtp/model/causal_lm.h"
#include "read_config.h"
#include "tiny_checkpoints.h"
#include "tiny_families.h"

namespace lmtp {
namespace {

using testing::expect_said;
using testing::TensorSpec;

// Two layers of three experts, of which a token has two.
constexpr const char* kTinyMoe =
    R"({"model_type": "qwen3_moe", "vocab_size": 11, "hidden_size": 4, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 8,
        "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 6})";

std::string moe(const std::string& type, const std::string& settings) {
  return R"({"model_type": ")" + type + R"(", )" + settings + "}";
}

std::vector<bool> sparse_layers(const std::string& config) {
  std::vector<bool> sparse;
  const auto result = read(config);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  for (const model::LayerSpec& layer : result->layers) sparse.push_back(layer.sparse);
  return sparse;
}

TEST(ExpertsTest, EachFamilySaysWhichLayersAreSparse) {
  using Layers = std::vector<bool>;
  EXPECT_EQ(sparse_layers(moe("qwen3_moe", R"("num_hidden_layers": 4, "decoder_sparse_step": 2)")),
            (Layers{false, true, false, true}));
  EXPECT_EQ(sparse_layers(moe("qwen2_moe", R"("num_hidden_layers": 3, "mlp_only_layers": [1])")),
            (Layers{true, false, true}));
  EXPECT_EQ(sparse_layers(moe("glm4_moe", R"("num_hidden_layers": 3, "head_dim": 128,
                                  "first_k_dense_replace": 2)")),
            (Layers{false, false, true}));
  EXPECT_EQ(sparse_layers(moe("ernie4_5_moe", R"("num_hidden_layers": 6,
      "moe_layer_start_index": 1, "moe_layer_end_index": 3, "moe_layer_interval": 2)")),
            (Layers{false, true, false, true, false, false}));
  EXPECT_EQ(sparse_layers(moe("mixtral", R"("num_hidden_layers": 2)")), (Layers{true, true}));
}

TEST(ExpertsTest, TheirNumberHasTheNamesOfBothReleases) {
  for (const char* key : {"num_experts", "num_local_experts"}) {
    const auto config = read(moe("qwen3_moe", "\"" + std::string(key) + "\": 12"));
    EXPECT_EQ(config->experts.count, 12) << key;
  }
}

TEST(ExpertsTest, ARandomShapeMayHaveFewerLayers) {
  EXPECT_EQ(model::shape_config("qwen3-30b-a3b")->num_layers, 48);
  const auto cut = model::shape_config("qwen3-30b-a3b-8l");
  ASSERT_TRUE(cut.ok()) << cut.error().message;
  EXPECT_EQ(cut->num_layers, 8);
  EXPECT_EQ(cut->experts.count, 128);
  for (const char* none : {"qwen3-30b-a3b-0l", "qwen3-30b-a3b-l", "qwen3-30b-a3b-8", "gpt2-8l",
                           "qwen3-30b-a3b-12345l", "qwen3-30b-a3b--1l"}) {
    expect_said(model::shape_config(none).error().message, "no such shape");
  }
}

TEST(ExpertsTest, AModelWithoutSparseLayersHasNoExperts) {
  const auto dense = read(moe("qwen3_moe", R"("num_hidden_layers": 2, "mlp_only_layers": [0, 1])"));
  EXPECT_EQ(dense->experts.count, 0);
  EXPECT_EQ(dense->mlp_size, 6144);
  EXPECT_EQ(read(moe("mixtral", R"("intermediate_size": 96)"))->mlp_size, 0);
  EXPECT_EQ(read(moe("mixtral", R"("intermediate_size": 96)"))->experts.size, 96);
}

TEST(ExpertsTest, SettingsThatNoModelHasAreRefusedByName) {
  for (const auto& [config, said] : std::initializer_list<std::pair<std::string, const char*>>{
           {moe("qwen3_moe", R"("num_experts": 4, "num_experts_per_tok": 5)"),
            "num_experts_per_tok: a whole number in [1, 4] is expected"},
           {moe("qwen3_moe", R"("num_experts": 0)"), "num_experts: a whole number in [1, 1024]"},
           {moe("qwen3_moe", R"("num_experts": 100000)"), "num_experts: a whole number in"},
           {moe("mixtral", R"("num_local_experts": -1)"), "num_local_experts: a whole number"},
           {moe("gpt_oss", R"("num_experts_per_tok": 65)"), "in [1, 64] is expected"},
           {moe("qwen3_moe", R"("mlp_only_layers": [24])"), "mlp_only_layers: numbers of layers"},
           {moe("qwen2_moe", R"("mlp_only_layers": [0.5])"), "mlp_only_layers: numbers of layers"},
           {moe("qwen3_moe", R"("use_sliding_window": true)"), "use_sliding_window: "},
           {moe("olmoe", R"("clip_qkv": 8.0)"), "clip_qkv: "},
           {moe("gpt_oss", R"("num_hidden_layers": 2)"), "rope_scaling: is missing"},
           {moe("gpt_oss", R"("swiglu_alpha": 1.5)"), "swiglu_alpha: 1.702 is expected"},
           {moe("glm4_moe", R"("head_dim": 128, "n_group": 3)"),
            "n_group, topk_group: groups of equal size"},
           {moe("glm4_moe",
                R"("head_dim": 128, "n_routed_experts": 8, "n_group": 4, "topk_group": 2)"),
            "as many as num_experts_per_tok"},
           {moe("glm4_moe", R"("head_dim": 128, "n_group": 4, "topk_group": 5)"),
            "topk_group: a whole number"},
           {moe("qwen3_moe", R"("num_hidden_layers": 4000)"), "together 512000 experts; allowed"},
           {moe("mixtral",
                R"("intermediate_size": 500000, "hidden_size": 131072, "head_dim": 8, "head_dim": 8,
               "num_local_experts": 64, "num_experts_per_tok": 64)"),
            "the experts of a token have together"},
       }) {
    expect_said(error_of(config), said);
  }
}

TEST(ExpertsTest, RanksHaveEqualSharesOfEachExpert) {
  const auto config = read(moe("qwen2_moe", R"("num_attention_heads": 8, "num_key_value_heads": 4,
      "hidden_size": 64, "moe_intermediate_size": 12, "shared_expert_intermediate_size": 20)"));
  EXPECT_EQ(model::rank_config(*config, 2)->experts.size, 6);
  EXPECT_EQ(model::rank_config(*config, 2)->experts.shared_size, 10);
  expect_said(model::rank_config(*config, 8).error().message,
              "8 heads, 4 KV heads and experts of 12, experts of 20 allow 1, 2, 4");
}

template <typename Edit>
std::string moe_file(const Edit& edit) {
  auto tensors = testing::tensors_of(kTinyMoe);
  edit(tensors);
  return testing::file_with(tensors);
}

std::string error_of_file(const std::string& file) { return testing::load_error(file, kTinyMoe); }

TEST(ExpertsTest, ExpertsThatAreMissingOrTooManyAreNamed) {
  EXPECT_EQ(error_of_file(moe_file([](std::vector<TensorSpec>&) {})), "");
  const std::string last = "model.layers.1.mlp.experts.2.down_proj.weight";
  expect_said(error_of_file(moe_file([&](std::vector<TensorSpec>& tensors) {
                std::erase_if(tensors, [&](const TensorSpec& one) { return one.name == last; });
              })),
              last.c_str());
  const std::string more = "model.layers.0.mlp.experts.3.up_proj.weight";
  expect_said(error_of_file(moe_file([&](std::vector<TensorSpec>& tensors) {
                tensors.push_back({more, {6, 4}, {}});
              })),
              more.c_str());
  expect_said(error_of_file(moe_file([&](std::vector<TensorSpec>& tensors) {
                for (TensorSpec& one : tensors) {
                  if (one.name.ends_with("0.mlp.gate.weight")) one.shape = {4, 4};
                }
              })),
              "model.layers.0.mlp.gate.weight");
}

// As torch.save(model.state_dict()) of transformers 5 has them.
std::string stacked_file(std::int64_t num_experts) {
  return moe_file([&](std::vector<TensorSpec>& tensors) {
    std::erase_if(tensors, [](const TensorSpec& one) {
      return one.name.find(".experts.") != std::string::npos;
    });
    for (const std::string layer : {"0", "1"}) {
      const std::string experts = "model.layers." + layer + ".mlp.experts.";
      tensors.push_back({experts + "gate_up_proj", {num_experts, 12, 4}, {}});
      tensors.push_back({experts + "down_proj", {num_experts, 4, 6}, {}});
    }
  });
}

TEST(ExpertsTest, OneTensorOfAllIsReadToo) {
  EXPECT_EQ(error_of_file(stacked_file(3)), "");
  expect_said(error_of_file(stacked_file(4)), "model.layers.0.mlp.experts.gate_up_proj");
}

TEST(ExpertsTest, ARoutersNumbersStayAsWideAsTheyAre) {
  using kernels::ElementType;
  using kernels::WeightType;
  for (const WeightType type :
       {WeightType::kF32, WeightType::kBF16, WeightType::kInt8, WeightType::kInt4}) {
    for (const ElementType of_file : {ElementType::kF32, ElementType::kBF16}) {
      const auto source = model::make_random_source(1, of_file);
      kernels::WorkerPool pool(1);
      const auto store = model::make_host_store(pool, type);
      model::WeightLoader loader(*source, *store, 0, nullptr);
      const auto linear = load_linear(
          loader,
          {.parts = {{"gate", {6}}}, .k = 8, .init = {.deviation = 1.0F}, .is_router = true},
          false);
      const auto made =
          model::random_tensor(1, {"gate.weight", {6, 8}, {.deviation = 1.0F}}, of_file);
      std::vector<float> numbers(6 * 8);
      std::vector<unsigned char> bytes(numbers.size() * 4);
      kernels::fill_random({.tensor = made, .first = 0, .count = 48, .to = bytes.data()});
      kernels::convert_to_f32(bytes.data(), of_file, 48, numbers.data());
      EXPECT_EQ(kernels::element_type(linear.weight().type), ElementType::kF32);
      for (std::int64_t i = 0; i < 48; ++i) {
        EXPECT_EQ(kernels::packed_element(linear.weight(), i / 8, i % 8),
                  numbers[static_cast<std::size_t>(i)]);
      }
    }
  }
}

}  // namespace
}  // namespace lmtp
