// Rotary settings as published models and both generations of transformers write them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lmtp/model/model_config.h"
#include "read_config.h"

namespace lmtp {
namespace {

using model::ModelConfig;

// A Llama of heads of 16 dimensions, with `more` keys.
std::string llama(const std::string& more) {
  return R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4,
             "num_hidden_layers": 2, "max_position_embeddings": 8192, )" +
         more + "}";
}

void expect_periods(const Result<ModelConfig>& config, const std::vector<float>& expected) {
  ASSERT_TRUE(config.ok()) << config.error().message;
  const auto& periods = config->rotaries.front().inverse_periods;
  ASSERT_EQ(periods.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(periods[i] / expected[i], 1.0F, 2e-6F) << "pair " << i;
  }
}

struct Yarn {
  const char* settings;
  float attention_factor;
  std::vector<float> periods;
  int context_length;
};

// Of transformers 4.57.6, and the same of 5.23.0.
const std::vector<float> kPlain = {1.0F,     0.3162278F,   0.1F,     0.02569351F,
                                   0.00625F, 0.001383497F, 0.00025F, 7.905695e-05F};
const Yarn kYarns[] = {
    {R"("factor": 4.0, "original_max_position_embeddings": 2048)", 1.1386294F, kPlain, 8192},
    {R"("factor": 4.0)",
     1.1386294F,
     {1.0F, 0.3162278F, 0.1F, 0.03162278F, 0.008125F, 0.001976424F, 0.0004375F, 7.905695e-05F},
     8192},
    {R"("factor": 4.0, "original_max_position_embeddings": 2048, "attention_factor": 0.8)", 0.8F,
     kPlain, 8192},
    {R"("factor": 4.0, "original_max_position_embeddings": 2048, "mscale": 0.707,
        "mscale_all_dim": 1.2)",
     0.94140352F, kPlain, 8192},
    {R"("factor": 4.0, "original_max_position_embeddings": 2048, "mscale": 0.707)", 1.1386294F,
     kPlain, 8192},
    {R"("factor": 4.0, "original_max_position_embeddings": 2048, "beta_fast": 4.0,
        "beta_slow": 0.5)",
     1.1386294F,
     {1.0F, 0.3162278F, 0.1F, 0.03162278F, 0.0075F, 0.001581139F, 0.00025F, 7.905695e-05F},
     8192},
    {R"("factor": 4.0, "original_max_position_embeddings": 2048, "beta_fast": 0,
        "beta_slow": null)",
     1.1386294F, kPlain, 8192},
    {R"("factor": 4.0, "original_max_position_embeddings": 2048, "truncate": false)",
     1.1386294F,
     {1.0F, 0.3162278F, 0.1F, 0.0238702F, 0.005056972F, 0.0008112905F, 0.00025F, 7.905695e-05F},
     8192},
    // Behind max_position_embeddings, which is the first context in what model cards advise.
    {R"("factor": 32.0, "original_max_position_embeddings": 4096, "truncate": false,
        "attn_factor": 0.5)",
     1.3465736F,
     {1.0F, 0.3162278F, 0.1F, 0.02773594F, 0.005552754F, 0.0007382769F, 3.125e-05F, 9.882118e-06F},
     131072},
    // transformers 5 alone: without a factor it is the share of both contexts.
    {R"("original_max_position_embeddings": 2048)", 1.1386294F, kPlain, 8192},
};

TEST(RotaryConfigTest, Yarn) {
  for (const Yarn& yarn : kYarns) {
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      SCOPED_TRACE(yarn.settings);
      const auto config = read(
          llama(std::string("\"") + key + R"(": {"rope_type": "yarn", )" + yarn.settings + "}"));
      expect_periods(config, yarn.periods);
      EXPECT_NEAR(config->rotaries.front().factor, yarn.attention_factor, 1e-6F);
      EXPECT_EQ(config->context_length, yarn.context_length);
      const bool warns = std::string(yarn.settings).find("attn_factor") != std::string::npos;
      EXPECT_EQ(config->notes.size(), warns ? 1U : 0U);
    }
  }
}

TEST(RotaryConfigTest, TheSettingsThatTransformers5Writes) {
  const std::string neox = R"({"model_type": "gpt_neox", "hidden_size": 64,
      "num_attention_heads": 4, "rotary_emb_base": 100, )";
  const auto pairs = [&](const std::string& more) {
    const auto config = read(neox + more + "}");
    return config.ok() ? config->rotaries.front().inverse_periods.size() : 0;
  };
  EXPECT_EQ(pairs(R"("rotary_pct": 0.5)"), 4U);
  EXPECT_EQ(pairs(R"("rope_parameters": {"partial_rotary_factor": 1.0})"), 8U);
  EXPECT_EQ(pairs(R"("rotary_pct": 0.5, "rope_parameters": {"partial_rotary_factor": 1.0})"), 8U);
  EXPECT_EQ(pairs(R"("rope_parameters": {"rope_type": "default"})"), 2U);
  EXPECT_EQ(pairs(R"("partial_rotary_factor": 0.5)"), 2U) << "which no version reads";
  const auto config = read(neox + R"("rope_parameters": {"rope_theta": 10000.0,
      "partial_rotary_factor": 0.5, "rope_type": "default"}})",
                           {.force = true});  // as the older theta differs
  expect_periods(config, {1.0F, 0.1F, 0.01F, 0.001F});

  const std::string phi = R"({"model_type": "phi3", "hidden_size": 64, "num_attention_heads": 4,
      "max_position_embeddings": 8192, )";
  EXPECT_EQ(read(phi + R"("rope_parameters": {"partial_rotary_factor": 0.75}})")
                ->rotaries.front()
                .inverse_periods.size(),
            6U);
  // The older key alone, as in transformers 5, where a user insists.
  expect_periods(read(llama(R"("rope_theta": 100, "rope_parameters": {"rope_theta": 81},
                               "rope_scaling": {"type": "linear", "factor": 10})"),
                      {.force = true}),
                 {0.1F, 0.05623413F, 0.03162278F, 0.01778279F, 0.01F, 0.005623413F, 0.003162278F,
                  0.001778279F});
}

// Texts have one position in all three sections.
TEST(RotaryConfigTest, SectionsOfImagesAreNoConcernOfTexts) {
  const auto plain = read(llama(R"("rope_theta": 100.0)"));
  for (const char* type : {"mrope", "default"}) {
    const auto config = read(llama(R"("rope_theta": 100.0, "rope_scaling": {"type": ")" +
                                   std::string(type) + R"(", "mrope_section": [2, 3, 3]})"));
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_EQ(config->rotaries.front().inverse_periods, plain->rotaries.front().inverse_periods);
  }
}

TEST(RotaryConfigTest, AFileThatIsNoConfigIsNotParsed) {
  EXPECT_NE(error_of(llama(std::string(std::size_t{2} << 20, ' '))).find("larger than 2097152"),
            std::string::npos);
}

TEST(RotaryConfigTest, SettingsByLayerType) {
  const std::string qwen = R"({"model_type": "qwen2", "hidden_size": 64, "num_attention_heads": 4,
      "num_hidden_layers": 2, "num_key_value_heads": 4, )";
  const std::string linear = R"({"rope_type": "linear", "factor": 2.0, "rope_theta": 100.0})";
  const auto both = read(qwen + R"("rope_parameters": {"full_attention": )" + linear +
                         R"(, "sliding_attention": )" + linear + "}}");
  ASSERT_TRUE(both.ok()) << both.error().message;
  EXPECT_FLOAT_EQ(both->rotaries.front().inverse_periods[0], 0.5F);
  EXPECT_FLOAT_EQ(both->rotaries.front().inverse_periods[4], 0.05F);
  // Types that no layer has may have any.
  const std::string other = R"("rope_parameters": {"full_attention": )" + linear +
                            R"(, "sliding_attention": {"rope_type": "default"}}})";
  EXPECT_TRUE(read(qwen + R"("layer_types": ["full_attention", "full_attention"], )" + other).ok());
  EXPECT_NE(error_of(qwen + other).find("turns in another way"), std::string::npos);
  EXPECT_NE(error_of(qwen + R"("rope_parameters": {"full_attention": )" + linear +
                     R"(, "rope_theta": 5}})")
                .find("rope_theta: stands beside settings by layer type"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"model_type": "mistral", "num_hidden_layers": 1,
                         "layer_types": ["sliding_attention"],
                         "rope_parameters": {"full_attention": )" +
                     linear + R"(, "sliding_attention": null}})")
                .find("sliding_attention: is missing"),
            std::string::npos);
}

TEST(RotaryConfigTest, WhatIsNotKnownIsRefused) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"("rope_theta": 99.0, "rope_parameters": {"rope_theta": 5000.0})",
       "rope_theta: differs from the rope_theta of the rotary settings"},
      {R"("rope_scaling": {"type": "linear", "factor": 2, "beta_fast": 1})", "beta_fast: is no"},
      {R"("rope_parameters": {"rope_type": "yarn", "factor": 2, "llama_4_scaling_beta": 0.1})",
       "llama_4_scaling_beta"},
      {R"("rope_scaling": {"rope_type": "linear", "type": "yarn", "factor": 2})",
       "different kinds"},
      {R"("rope_scaling": {"type": "linear"})", "factor: a number above 0"},
      {R"("rope_scaling": {"type": "yarn", "factor": NaN})", "factor: a number above 0"},
      {R"("rope_scaling": {"type": "llama3", "factor": 8, "low_freq_factor": 1})",
       "high_freq_factor: a number"},
      {R"("rope_scaling": {"type": "yarn", "factor": 2, "beta_fast": -1})", "beyond those a float"},
      {R"("rope_scaling": {"type": "yarn", "factor": 2, "attention_factor": 1e300})", "a float"},
      {R"("rope_theta": 1)", "rope_theta: a number above 1"},
      {R"("partial_rotary_factor": 0.5)", "turn whole"},
      {R"("rope_parameters": {"partial_rotary_factor": 0.5})", "turn whole"},
      {R"("rope_scaling": [1])", "an object is expected"},
      {R"("rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
          "rope_scaling": {"rope_type": "yarn", "factor": 4})",
       "rope_scaling and rope_parameters differ"},
      {R"("layer_types": ["full_attention"], "rope_parameters": {"rope_theta": 1e6,
          "full_attention": {"rope_type": "default"}})",
       "rope_theta: stands beside settings by layer type"},
  };
  for (const auto& [more, expected] : kCases) {
    EXPECT_NE(error_of(llama(more)).find(expected), std::string::npos)
        << more << ": " << error_of(llama(more));
  }
  const auto forced =
      read(llama(R"("rope_scaling": {"type": "linear", "factor": 2, "x": 1})"), {.force = true});
  ASSERT_TRUE(forced.ok());
  ASSERT_EQ(forced->notes.size(), 1U);
  EXPECT_NE(forced->notes[0].find("x: is no known setting of 'linear'"), std::string::npos);
  EXPECT_TRUE(read(llama(R"("rope_scaling": {"type": "linear", "factor": 2, "x": null})")).ok());
}

TEST(RotaryConfigTest, LongropeHasOneSetOfFactorsForAllStreams) {
  const auto phi = [](const std::string& more, int context_length = 0) {
    return read(R"({"model_type": "phi3", "hidden_size": 32, "num_attention_heads": 8,
                    "max_position_embeddings": 131072, )" +
                    more + "}",
                {.context_length = context_length});
  };
  const std::string factors = R"("short_factor": [1.0, 2.0], "long_factor": [3.0, 4.0])";
  const std::string scaling = R"("rope_scaling": {"type": "longrope", )" + factors + "}";
  const std::string first = R"("original_max_position_embeddings": 8192, )";
  const float by_contexts = 1.1435437F;  // sqrt(1 + ln(131072 / 8192) / ln(8192))
  for (const int wanted : {0, 100, 8192}) {
    const auto config = phi(first + scaling, wanted);
    expect_periods(config, {1.0F, 0.005F});
    EXPECT_EQ(config->context_length, 8192);
    EXPECT_NEAR(config->rotaries.front().factor, by_contexts, 1e-6F);
    EXPECT_TRUE(config->notes.empty());
  }
  for (const int wanted : {8193, 200'000}) {
    const auto config = phi(first + scaling, wanted);
    expect_periods(config, {1.0F / 3.0F, 0.0025F});
    EXPECT_EQ(config->context_length, 131072);
    EXPECT_NEAR(config->rotaries.front().factor, by_contexts, 1e-6F);
    ASSERT_EQ(config->notes.size(), 1U);
    EXPECT_NE(config->notes[0].find("long factors"), std::string::npos);
  }
  EXPECT_EQ(phi(scaling)->context_length, 4096) << "without the key";
  EXPECT_FLOAT_EQ(phi(first + R"("rope_scaling": {"type": "longrope", "attention_factor": 1.5, )" +
                      factors + "}")
                      ->rotaries.front()
                      .factor,
                  1.5F);
  EXPECT_NEAR(phi(first + R"("rope_scaling": {"type": "longrope", "factor": 2.0, )" + factors + "}")
                  ->rotaries.front()
                  .factor,
              1.0377490F, 1e-6F);  // sqrt(1 + ln(2) / ln(8192))
  // Old names of longrope, and where transformers 5 keeps the first context.
  for (const char* name : {"su", "yarn"}) {
    expect_periods(
        phi(R"("rope_scaling": {"type": ")" + std::string(name) + "\", " + factors + "}"),
        {1.0F, 0.005F});
  }
  EXPECT_EQ(phi(R"("rope_parameters": {"rope_type": "longrope",
                    "original_max_position_embeddings": 2048, )" +
                factors + "}")
                ->context_length,
            2048);
  EXPECT_FALSE(phi(R"("rope_scaling": {"type": "longrope", "short_factor": [1, 0],
                       "long_factor": [1, 1]})")
                   .ok());
}

}  // namespace
}  // namespace lmtp
