#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "lmtp/model/model_config.h"
#include "read_config.h"
#include "temp_folder.h"

namespace lmtp {
namespace {

TEST(ModelConfigTest, MissingKeysHaveTheDefaultsOfTransformers) {
  const auto config = read(R"({"model_type": "gpt2"})");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->architecture, "GPT2LMHeadModel");
  EXPECT_EQ(config->vocab_size, 50257);
  EXPECT_EQ(config->context_length, 1024);
  EXPECT_EQ(config->hidden_size, 768);
  EXPECT_EQ(config->num_layers, 12);
  EXPECT_EQ(config->num_heads, 12);
  EXPECT_EQ(config->head_dim, 64);
  EXPECT_EQ(config->mlp_size, 3072);
  EXPECT_EQ(config->layers.front().activation, kernels::Activation::kGeluTanh);
  EXPECT_FLOAT_EQ(config->norm_epsilon, 1e-5F);
  EXPECT_FLOAT_EQ(config->layers.back().attention_scale, 1.0F / 8.0F);
  EXPECT_TRUE(config->tied_embeddings);
  EXPECT_EQ(config->eos_ids, std::vector<TokenId>{50256});
}

TEST(ModelConfigTest, EveryKeyIsRead) {
  const auto config = read(R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
      "vocab_size": 300, "n_positions": 128, "n_embd": 36, "n_layer": 2, "n_head": 3,
      "n_inner": 50, "activation_function": "relu", "layer_norm_epsilon": 0.001,
      "scale_attn_weights": false, "scale_attn_by_inverse_layer_idx": true,
      "reorder_and_upcast_attn": true, "tie_word_embeddings": false, "eos_token_id": 7})");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->architecture, "GPT2LMHeadModel");
  EXPECT_EQ(config->vocab_size, 300);
  EXPECT_EQ(config->context_length, 128);
  EXPECT_EQ(config->head_dim, 12);
  EXPECT_EQ(config->mlp_size, 50);
  EXPECT_EQ(config->layers.front().activation, kernels::Activation::kRelu);
  EXPECT_FLOAT_EQ(config->norm_epsilon, 1e-3F);
  EXPECT_FLOAT_EQ(config->layers.front().attention_scale, 1.0F);
  EXPECT_FLOAT_EQ(config->layers.back().attention_scale, 0.5F);
  EXPECT_FALSE(config->tied_embeddings);
  EXPECT_EQ(config->eos_ids, std::vector<TokenId>{7});
}

TEST(ModelConfigTest, TheEndTokensAreThoseOfTheGenerationConfig) {
  const std::string config = R"({"model_type": "gpt2", "vocab_size": 100, "eos_token_id": 7})";
  EXPECT_EQ(read(config, {}, R"({"eos_token_id": 9})")->eos_ids, std::vector<TokenId>{9});
  EXPECT_EQ(read(config, {}, R"({"eos_token_id": [12, 3, 12]})")->eos_ids,
            (std::vector<TokenId>{3, 12}));
  EXPECT_EQ(read(config, {}, R"({"eos_token_id": null})")->eos_ids, std::vector<TokenId>{7});
  EXPECT_EQ(read(config, {}, R"({})")->eos_ids, std::vector<TokenId>{7});
  EXPECT_EQ(read(config, {}, R"({"eos_token_id": [100, -1, 5]})")->eos_ids,
            std::vector<TokenId>{5});
  EXPECT_TRUE(read(R"({"model_type": "gpt2", "eos_token_id": null})")->eos_ids.empty());
}

TEST(ModelConfigTest, ModelOptimizersFileIsReadWhereTheConfigSaysNothing) {
  const testing::TempFolder folder;
  std::ofstream(folder.path() + "/config.json")
      << R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4})";
  const auto with = [&](const std::string& text) {
    std::ofstream(folder.path() + "/hf_quant_config.json") << text;
    return model::read_model_config(folder.path());
  };
  const auto config = with(R"({"producer": {"name": "modelopt", "version": "0.15.0"},
      "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8",
                       "exclude_modules": ["lm_head"]}})");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->quantization.method, model::QuantMethod::kModelOpt);
  EXPECT_EQ(config->quantization.ignored, std::vector<std::string>{"lm_head"});
  EXPECT_TRUE(config->quantization.scales_kv_cache);
  EXPECT_EQ(config->notes.size(), 1U);
  const auto plain =
      with(R"({"quantization": {"quant_algo": null, "kv_cache_quant_algo": "FP8"}})");
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  EXPECT_EQ(plain->quantization.method, model::QuantMethod::kNone) << "its weights are as they are";
  EXPECT_TRUE(plain->quantization.scales_kv_cache);
  EXPECT_EQ(plain->notes.size(), 1U);
  EXPECT_NE(with(R"({"quantization": {"quant_algo": "W4A16_AWQ"}})")
                .error()
                .message.find("'W4A16_AWQ' is not served: FP8 and NVFP4 are"),
            std::string::npos);
  EXPECT_NE(with("{").error().message.find("hf_quant_config.json: not JSON"), std::string::npos);
}

TEST(ModelConfigTest, NumbersAsPythonWritesThem) {
  const auto config =
      read(R"({"model_type": "gpt2", "n_embd": 36.0, "n_head": 3, "n_positions": 1e3,
      "layer_norm_epsilon": NaN, "model_max_length": 1000000000000000019884624838656,
      "eos_token_id": 7.0, "x": [Infinity, -Infinity]})");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->hidden_size, 36);
  EXPECT_EQ(config->context_length, 1000);
  EXPECT_FLOAT_EQ(config->norm_epsilon, 1e-5F);
  EXPECT_EQ(config->eos_ids, std::vector<TokenId>{7});
  EXPECT_NE(error_of(R"({"model_type": "gpt2", "n_embd": 36.5})").find("n_embd: a whole number"),
            std::string::npos);
}

TEST(ModelConfigTest, WhatIsWrongIsNamed) {
  struct Case {
    const char* config;
    const char* reason;
  };
  const Case cases[] = {
      {"{", "config.json: not JSON"},
      {"[]", "not a JSON object"},
      {"{}", "model_type '' is not supported; supported are: gpt2, gpt_neox, opt"},
      {R"({"model_type": "bert"})", "model_type 'bert'"},
      {R"({"model_type": "gpt2", "n_layer": "12"})", "n_layer: a whole number"},
      {R"({"model_type": "gpt2", "n_layer": 0})", "n_layer: a whole number in [1, "},
      {R"({"model_type": "gpt2", "vocab_size": 99999999999})", "vocab_size"},
      {R"({"model_type": "gpt2", "n_embd": 100})", "n_embd must be a multiple of n_head"},
      {R"({"model_type": "gpt2", "n_embd": 8192, "n_head": 1})", "512 at most"},
      {R"({"model_type": "gpt2", "activation_function": "softplus"})", "softplus"},
      {R"({"model_type": "gpt2", "tie_word_embeddings": 1})", "true or false"},
      {R"({"model_type": "gpt2", "layer_norm_epsilon": "x"})", "a number is expected"},
      {R"({"model_type": "gpt2", "eos_token_id": "x"})", "eos_token_id: a token id"},
  };
  for (const Case& expected : cases) {
    const std::string error = error_of(expected.config);
    EXPECT_NE(error.find(expected.reason), std::string::npos) << expected.config << ": " << error;
  }
  EXPECT_NE(error_of(R"({"model_type": "gpt2"})", "?").find("generation_config.json: not JSON"),
            std::string::npos);
  EXPECT_NE(model::read_model_config("/nowhere").error().message.find("/nowhere/config.json"),
            std::string::npos);
}

TEST(ModelConfigTest, ShapesOfRandomModels) {
  EXPECT_EQ(model::shape_config("gpt2")->hidden_size, 768);
  const auto medium = model::shape_config("gpt2-medium");
  ASSERT_TRUE(medium.ok());
  EXPECT_EQ(medium->num_layers, 24);
  EXPECT_EQ(medium->num_heads, 16);
  EXPECT_EQ(medium->vocab_size, 50257);
  EXPECT_EQ(medium->eos_ids, std::vector<TokenId>{50256});
  EXPECT_FALSE(model::shape_config("").ok());
}

}  // namespace
}  // namespace lmtp
