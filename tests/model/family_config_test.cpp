// config.json of every architecture: what is missing, null, extra or wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <initializer_list>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "lmtp/model/model_config.h"
#include "read_config.h"
#include "source_dir.h"

namespace lmtp {
namespace {

// The defaults of transformers 4.57's config classes.
struct Defaults {
  const char* model_type;
  const char* architecture;
  int vocab_size;
  int context_length;
  int hidden_size;
  int mlp_size;
  int num_layers;
  int num_heads;
  int num_kv_heads;
  int head_dim;
  int num_rotary_pairs;
  float norm_epsilon;
  bool tied;
  std::vector<TokenId> eos_ids;
};

const Defaults kDefaults[] = {
    {"gpt_neox",
     "GPTNeoXForCausalLM",
     50432,
     2048,
     6144,
     24576,
     44,
     64,
     64,
     96,
     12,
     1e-5F,
     false,
     {2}},
    {"opt", "OPTForCausalLM", 50272, 2048, 768, 3072, 12, 12, 12, 64, 0, 1e-5F, true, {2}},
    {"llama", "LlamaForCausalLM", 32000, 2048, 4096, 11008, 32, 32, 32, 128, 64, 1e-6F, false, {2}},
    {"mistral",
     "MistralForCausalLM",
     32000,
     131072,
     4096,
     14336,
     32,
     32,
     8,
     128,
     64,
     1e-6F,
     false,
     {2}},
    {"qwen2",
     "Qwen2ForCausalLM",
     151936,
     32768,
     4096,
     22016,
     32,
     32,
     32,
     128,
     64,
     1e-6F,
     false,
     {}},
    {"qwen3",
     "Qwen3ForCausalLM",
     151936,
     32768,
     4096,
     22016,
     32,
     32,
     32,
     128,
     64,
     1e-6F,
     false,
     {}},
    {"phi3", "Phi3ForCausalLM", 32064, 4096, 3072, 8192, 32, 32, 32, 96, 48, 1e-5F, false, {32000}},
    {"gemma2", "Gemma2ForCausalLM", 256000, 8192, 2304, 9216, 26, 8, 4, 256, 128, 1e-6F, true, {1}},
};

void expect_defaults(const Defaults& expected, const std::string& more_keys) {
  SCOPED_TRACE(expected.model_type);
  const auto config =
      read(std::string(R"({"model_type": ")") + expected.model_type + "\"" + more_keys + "}");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->architecture, expected.architecture);
  EXPECT_EQ(config->vocab_size, expected.vocab_size);
  EXPECT_EQ(config->context_length, expected.context_length);
  EXPECT_EQ(config->hidden_size, expected.hidden_size);
  EXPECT_EQ(config->mlp_size, expected.mlp_size);
  EXPECT_EQ(config->num_layers, expected.num_layers);
  EXPECT_EQ(config->num_heads, expected.num_heads);
  EXPECT_EQ(config->num_kv_heads, expected.num_kv_heads);
  EXPECT_EQ(config->head_dim, expected.head_dim);
  const std::size_t num_pairs =
      config->rotaries.empty() ? 0 : config->rotaries.front().inverse_periods.size();
  EXPECT_EQ(static_cast<int>(num_pairs), expected.num_rotary_pairs);
  EXPECT_FLOAT_EQ(config->norm_epsilon, expected.norm_epsilon);
  EXPECT_EQ(config->tied_embeddings, expected.tied);
  EXPECT_EQ(config->eos_ids, expected.eos_ids);
}

TEST(FamilyConfigTest, MissingKeysHaveTheDefaultsOfTransformers) {
  for (const Defaults& defaults : kDefaults) expect_defaults(defaults, "");
}

TEST(FamilyConfigTest, KeysOfNoConcernAreIgnored) {
  for (const Defaults& defaults : kDefaults) {
    expect_defaults(defaults,
                    R"(, "quantizer": {"bits": [4, null]}, "auto_map": {"AutoTokenizer": "b.C"},
        "torch_dtype": "bfloat16", "transformers_version": "9", "rope_scaling": null,
        "use_cache": false, "attention_dropout": 0.5, "_name_or_path": "x/y")");
  }
}

TEST(FamilyConfigTest, GeluIsSpeltInManyWays) {
  const auto activation = [](const std::string& name) {
    return read(R"({"model_type": "llama", "hidden_act": ")" + name + "\"}")
        ->layers.front()
        .activation;
  };
  for (const char* name :
       {"gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_accurate", "gelu_python_tanh"}) {
    EXPECT_EQ(activation(name), kernels::Activation::kGeluTanh) << name;
  }
  EXPECT_EQ(activation("gelu"), kernels::Activation::kGeluErf);
  EXPECT_EQ(activation("gelu_python"), kernels::Activation::kGeluErf);
  EXPECT_EQ(activation("relu2"), kernels::Activation::kSquaredRelu);
  EXPECT_EQ(activation("quick_gelu"), kernels::Activation::kQuickGelu);
  EXPECT_EQ(activation("gelu_10"), kernels::Activation(kernels::Activation::kClippedGelu, 10.0F));
  EXPECT_EQ(activation("relu6"), kernels::Activation(kernels::Activation::kClippedRelu, 6.0F));
}

TEST(FamilyConfigTest, NullAndAbsentAreToldApart) {
  EXPECT_EQ(windows_of(*read(R"({"model_type": "mistral"})")), std::vector<int>(32, 4096));
  EXPECT_EQ(windows_of(*read(R"({"model_type": "mistral", "sliding_window": null})")),
            std::vector<int>(32, 0));
  EXPECT_EQ(read(R"({"model_type": "mistral", "num_key_value_heads": null})")->num_kv_heads, 32);
  EXPECT_EQ(read(R"({"model_type": "qwen3", "head_dim": null, "hidden_size": 2048})")->head_dim,
            64);
  const auto uncapped = read(R"({"model_type": "gemma2", "attn_logit_softcapping": null})");
  EXPECT_FLOAT_EQ(uncapped->layers.front().attention_soft_cap, 0.0F);
  EXPECT_FLOAT_EQ(uncapped->logit_soft_cap, 30.0F);
}

TEST(FamilyConfigTest, WindowsByLayer) {
  const std::string qwen = R"({"model_type": "qwen2", "num_hidden_layers": 3,
      "sliding_window": 50, "max_window_layers": 1)";
  EXPECT_EQ(windows_of(*read(qwen + "}")), std::vector<int>(3, 0)) << "without use_sliding_window";
  EXPECT_EQ(windows_of(*read(qwen + R"(, "use_sliding_window": true})")),
            (std::vector<int>{0, 50, 50}));
  EXPECT_EQ(windows_of(*read(R"({"model_type": "gemma2", "num_hidden_layers": 3})")),
            (std::vector<int>{4096, 0, 4096}));
  EXPECT_EQ(windows_of(*read(R"({"model_type": "gemma2", "num_hidden_layers": 2,
                "sliding_window": 7, "layer_types": ["full_attention", "sliding_attention"]})")),
            (std::vector<int>{0, 7}));
  EXPECT_NE(error_of(R"({"model_type": "gemma2", "layer_types": ["full_attention"]})")
                .find("layer_types: 26 names"),
            std::string::npos);
}

TEST(FamilyConfigTest, NoWindowIsWrittenInManyWays) {
  for (const char* none : {"null", "0", "-1"}) {
    const std::string window = std::string(R"("sliding_window": )") + none;
    for (const std::string head : {R"({"model_type": "mistral", )", R"({"model_type": "phi3", )",
                                   R"({"model_type": "qwen2", "use_sliding_window": true,
                                       "max_window_layers": 0, )"}) {
      const auto config = read(head + window + "}");
      ASSERT_TRUE(config.ok()) << config.error().message;
      EXPECT_EQ(windows_of(*config), std::vector<int>(32, 0)) << head << window;
    }
    EXPECT_NE(error_of(R"({"model_type": "gemma2", )" + window + "}").find("layer 0 needs one"),
              std::string::npos);
  }
  EXPECT_NE(error_of(R"({"model_type": "mistral", "sliding_window": -2})").find("sliding_window"),
            std::string::npos);
}

// transformers gives all layers of these families the same window, whatever such a list says.
TEST(FamilyConfigTest, LayerTypesThatAFamilyDoesNotHaveAreRefused) {
  const std::string mistral = R"({"model_type": "mistral", "num_hidden_layers": 2, )";
  const std::string mixed = R"("layer_types": ["full_attention", "sliding_attention"])";
  EXPECT_NE(error_of(mistral + mixed + "}").find("'full_attention' is not how layers of 'mistral'"),
            std::string::npos);
  EXPECT_NE(error_of(mistral + R"("sliding_window": null, )" + mixed + "}").find("see all tokens"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"model_type": "phi3", "sliding_window": 8, "num_hidden_layers": 2, )" +
                     mixed + "}")
                .find("'phi3'"),
            std::string::npos);
  EXPECT_TRUE(read(mistral + R"("layer_types": ["sliding_attention", "sliding_attention"]})").ok());
  const std::string qwen = R"({"model_type": "qwen3", "num_hidden_layers": 2, )";
  EXPECT_NE(error_of(qwen + mixed + "}").find("layer 1 needs one"), std::string::npos);
  EXPECT_NE(error_of(qwen + R"("layer_types": ["full_attention", "linear_attention"]})")
                .find("'linear_attention' is not supported"),
            std::string::npos);
}

TEST(FamilyConfigTest, ALargerModelMayHaveItsTextsKeysAmongItsOwn) {
  const auto flat = read(R"({"model_type": "qwen2_vl", "hidden_size": 64, "num_attention_heads": 8,
      "architectures": ["Qwen2VLForConditionalGeneration"], "vision_config": {"depth": 1},
      "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}})");
  ASSERT_TRUE(flat.ok()) << flat.error().message;
  EXPECT_EQ(flat->model_type, "qwen2_vl_text");
  EXPECT_EQ(flat->outer_model_type, "qwen2_vl");
  EXPECT_EQ(flat->hidden_size, 64);
  EXPECT_THAT(flat->notes, ::testing::ElementsAre(::testing::HasSubstr("without vision")));
}

TEST(FamilyConfigTest, LayersThatSeeAWindowMayTurnInAnotherWay) {
  for (const char* how :
       {R"("rope_theta": 100.0, "rope_local_base_freq": 400.0,
           "rope_scaling": {"rope_type": "linear", "factor": 2.0})",
        R"("rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 2.0,
           "rope_theta": 100.0}, "sliding_attention": {"rope_type": "default",
           "rope_theta": 400.0}})"}) {
    const auto config = read(std::string(R"({"model_type": "gemma3_text", "num_hidden_layers": 2,
        "head_dim": 4, "layer_types": ["full_attention", "sliding_attention"], )") +
                             how + "}");
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_EQ(config->layers[0].rotary, 0);
    EXPECT_EQ(config->layers[1].rotary, 1);
    EXPECT_THAT(config->rotaries[0].inverse_periods, ::testing::ElementsAre(0.5F, 0.05F));
    EXPECT_THAT(config->rotaries[1].inverse_periods, ::testing::ElementsAre(1.0F, 0.05F));
  }
  EXPECT_NE(error_of(R"({"model_type": "gemma3_text",
      "rope_parameters": {"rope_type": "default", "rope_theta": 100.0}})")
                .find("supported are full_attention and sliding_attention"),
            std::string::npos);
}

// `a`, `b` of a table's first column, up to the first line that is no row.
std::set<std::string> names_of_table(const std::string& text, const std::string& head) {
  std::set<std::string> names;
  std::istringstream lines(text.substr(text.find(head)));
  for (std::string line; std::getline(lines, line) && line.starts_with('|');) {
    std::string cell = line.substr(1, line.find('|', 1) - 1);
    if (line.starts_with(head)) continue;
    for (std::size_t at = cell.find('`'); at != std::string::npos; at = cell.find('`', at + 1)) {
      const std::size_t end = cell.find('`', at + 1);
      names.insert(cell.substr(at + 1, end - at - 1));
      at = end;
    }
  }
  return names;
}

std::set<std::string> served_types() {
  const std::string message = error_of(R"({"model_type": "none"})");
  const std::string list = message.substr(message.find("supported are: ") + 15);
  std::set<std::string> served;
  std::istringstream names(list.substr(0, list.find(" (")));
  for (std::string name; names >> name;) {
    if (name.ends_with(',')) name.pop_back();
    served.insert(name);
  }
  return served;
}

TEST(FamilyConfigTest, TheDocsListThoseThatAreServed) {
  std::ifstream file(testing::source_dir() + "/docs/models.md");
  const std::string docs((std::istreambuf_iterator<char>(file)), {});
  ASSERT_FALSE(docs.empty());
  EXPECT_EQ(names_of_table(docs, "| `model_type` |"), served_types());
}

// docs/families.md, which tools/dev/families wrote: what was served stays so.
TEST(FamilyConfigTest, TheListOfTransformersTypesHoldsStill) {
  const std::set<std::string> served = served_types();
  std::ifstream file(testing::source_dir() + "/docs/families.md");
  int num_served = 0;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("| `")) continue;
    const std::size_t end = line.find("` | ");
    ASSERT_NE(end, std::string::npos) << line;
    std::string type = line.substr(3, end - 3);
    const std::string outcome = line.substr(end + 4);
    const bool is_equal = outcome.starts_with("equal");
    if (const auto as = outcome.find('`'); is_equal && as != std::string::npos) {
      type = outcome.substr(as + 1, outcome.rfind('`') - as - 1);
    }
    num_served += is_equal ? 1 : 0;
    EXPECT_TRUE(is_equal || outcome.starts_with("refused: ") || outcome.starts_with("not made: "))
        << line;
    if (is_equal || outcome.starts_with("refused: model_type")) {
      EXPECT_EQ(served.contains(type), is_equal) << line;
    }
  }
  EXPECT_GE(num_served, 59);
}

TEST(FamilyConfigTest, SettingsOfNewerFamiliesAreReadOrRefusedByName) {
  const auto neo = read(R"({"model_type": "gpt_neo", "num_layers": 3, "window_size": 9,
      "attention_types": [[["global"], 1], [["local"], 2]]})");
  EXPECT_EQ(windows_of(*neo), (std::vector<int>{0, 9, 9}));
  const auto smollm = read(R"({"model_type": "smollm3", "num_hidden_layers": 3,
      "no_rope_layers": [1, 0, 1]})");
  EXPECT_EQ(smollm->layers[1].rotary, -1);
  EXPECT_EQ(smollm->layers[2].rotary, 0);
  for (const auto& [config, key] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"({"model_type": "smollm3", "no_rope_layers": [1]})", "no_rope_layers: 36"},
           {R"({"model_type": "cohere", "use_qk_norm": true})", "use_qk_norm"},
           {R"({"model_type": "phi", "qk_layernorm": true})", "qk_layernorm"},
           {R"({"model_type": "stablelm", "qk_layernorm": true})", "qk_layernorm"},
           {R"({"model_type": "gpt_neo", "attention_types": [[["global"], 1000000000]]})",
            "attention_types: 24 names"},
           {R"({"model_type": "gpt_neo", "attention_types": [[[], 1000000000]]})", "pairs of"},
           {R"({"model_type": "gpt_neo", "attention_types": [["global", 24]]})", "pairs of"},
           {R"({"model_type": "falcon", "alibi": true})", "alibi"},
           {R"({"model_type": "cwm"})", "rope_parameters"},
           {R"({"model_type": "olmo", "clip_qkv": 8.0})", "clip_qkv"},
           {R"({"model_type": "iquestcoder", "use_sliding_window": true})", "use_sliding_window"},
           {R"({"model_type": "hyperclovax", "residual_multiplier": 0.5})", "residual_multiplier"},
           {R"({"model_type": "solar_open", "use_qk_norm": true})", "use_qk_norm"},
           {R"({"model_type": "hunyuan_v1_moe", "moe_topk": [2, 3]})", "moe_topk"},
           {R"({"model_type": "hunyuan_v1_moe", "moe_topk": [1e300]})", "moe_topk"},
           {R"({"model_type": "hunyuan_v1_moe", "num_experts": 8, "num_experts_per_tok": 4})",
            "num_experts_per_tok"},
           {R"({"model_type": "hunyuan_v1_moe", "num_shared_expert": [2]})", "num_shared_expert"},
           {R"({"model_type": "openai-gpt", "afn": "gelu_new2"})", "gelu_new2"},
           {R"({"model_type": "gemma2", "attn_logit_softcapping": 1e300})",
            "attn_logit_softcapping"},
           {R"({"model_type": "qwen2_moe", "num_hidden_layers": 1,
                "layer_types": ["sliding_attention"]})",
            "sliding_window"},
           {R"({"model_type": "falcon", "num_ln_in_parallel_attn": 2})", "num_ln_in_parallel"},
           {R"({"model_type": "falcon", "num_attention_heads": 64, "num_kv_heads": 8,
                "hidden_size": 4096, "multi_query": false})",
            "num_kv_heads"},
           {R"({"model_type": "codegen", "n_head": 10, "n_embd": 640})", "n_head"},
           {R"({"model_type": "apertus"})", "rope_parameters"},
           {R"({"model_type": "hunyuan_v1_dense", "rope_scaling": {"type": "dynamic",
                "alpha": -1.0}})",
            "alpha"},
           {R"({"model_type": "llama", "rope_scaling": {"type": "dynamic", "alpha": 2.0}})",
            "alpha: is no known setting"},
           {R"({"model_type": "gpt_neo", "num_layers": 1, "attention_layers": ["near"]})",
            "'near'"},
           {R"({"model_type": "gptj", "rotary_dim": 9})", "cannot turn"},
           {R"({"model_type": "granite", "logits_scaling": 0})", "logits_scaling"},
           {R"({"model_type": "granite", "attention_multiplier": 1e-300})", "attention_multiplier"},
           {R"({"model_type": "olmo2", "rms_norm_eps": 0})", "rms_norm_eps"},
           {R"({"model_type": "cohere2", "layer_norm_eps": 1e300})", "layer_norm_eps"},
           {R"({"model_type": "gemma3_text", "query_pre_attn_scalar": -8})",
            "query_pre_attn_scalar"},
           {R"({"model_type": "gemma3_text", "rope_scaling": {"rope_type": "linear", "factor": 2.0},
                "rope_parameters": {"full_attention": {"rope_theta": 50.0}}})",
            "keep one of them"},
           {R"({"model_type": "exaone4", "sliding_window_pattern": "LG"})",
            "sliding_window_pattern"},
           {R"({"model_type": "gemma3_text", "final_logit_softcapping": 30.0})",
            "final_logit_softcapping"}}) {
    EXPECT_THAT(error_of(config), ::testing::HasSubstr(key));
  }
}

TEST(FamilyConfigTest, RotaryScaling) {
  const std::string llama = R"({"model_type": "llama", "head_dim": 8, "rope_theta": 10000)";
  const auto plain = read(llama + "}")->rotaries.front().inverse_periods;
  ASSERT_EQ(plain.size(), 4U);
  EXPECT_FLOAT_EQ(plain[1], 0.1F);
  const auto halved =
      read(llama + R"(, "rope_scaling": {"type": "linear", "factor": 2.0}})")->rotaries.front();
  EXPECT_FLOAT_EQ(halved.inverse_periods[1], 0.05F);
  // Newer versions of transformers put both into one object.
  const auto newer = read(R"({"model_type": "llama", "head_dim": 8,
      "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}})");
  EXPECT_EQ(newer->rotaries.front().inverse_periods, halved.inverse_periods);
  const auto longrope = read(R"({"model_type": "phi3", "hidden_size": 32, "num_attention_heads": 8,
      "max_position_embeddings": 131072, "original_max_position_embeddings": 4096,
      "rope_scaling": {"type": "longrope", "short_factor": [1.0, 2.0], "long_factor": [3, 4]}})");
  EXPECT_EQ(longrope->context_length, 4096);
  EXPECT_FLOAT_EQ(longrope->rotaries.front().factor, 1.1902381F);
  EXPECT_FLOAT_EQ(longrope->rotaries.front().inverse_periods[1], 0.005F);
}

TEST(FamilyConfigTest, EachRankHasAShareOfTheVocabulary) {
  const auto config = read(R"({"model_type": "llama", "vocab_size": 3})");
  EXPECT_TRUE(model::rank_config(*config, 2).ok());
  const auto four = model::rank_config(*config, 4);
  ASSERT_FALSE(four.ok());
  EXPECT_EQ(four.error().message, "a vocabulary of 3 cannot be divided among 4 ranks");
}

TEST(FamilyConfigTest, WhatIsNotSupportedIsNamed) {
  EXPECT_NE(error_of(R"({"model_type": "mamba"})")
                .find("'mamba' is not supported; supported are: gpt2, gpt_neox, opt, llama, "),
            std::string::npos);
  const std::pair<const char*, const char*> kCases[] = {
      {R"({"model_type": "llama", "rope_scaling": {"type": "linear", "factor": 0}})", "factor"},
      {R"({"model_type": "llama", "rope_scaling": 3})", "rope_scaling: an object"},
      {R"({"model_type": "llama", "hidden_act": "mish"})", "'mish'"},
      {R"({"model_type": "llama", "num_key_value_heads": 5})", "num_key_value_heads"},
      {R"({"model_type": "llama", "head_dim": 7})", "even"},
      {R"({"model_type": "llama", "head_dim": 100000})", "head_dim"},
      {R"({"model_type": "llama", "rope_theta": -1})", "rope_theta"},
      {R"({"model_type": "opt", "layer_norm_elementwise_affine": false})", "affine"},
      {R"({"model_type": "gpt_neox", "num_attention_heads": 7})", "num_attention_heads"},
      // By hidden_size and num_attention_heads.
      {R"({"model_type": "llama", "num_attention_heads": 4, "num_key_value_heads": 4})",
       "1024 dimensions"},
      {R"({"model_type": "opt", "num_attention_heads": 1})", "768 dimensions"},
      {R"({"model_type": "gpt_neox", "num_attention_heads": 8})", "768 dimensions"},
      {R"({"model_type": "gemma2", "attn_logit_softcapping": -50.0})", "attn_logit_softcapping"},
      {R"({"model_type": "gemma2", "final_logit_softcapping": -1})", "final_logit_softcapping"},
      {R"({"model_type": "phi3", "rope_scaling": {"type": "longrope", "short_factor": [1]}})",
       "short_factor: 48 numbers"},
  };
  for (const auto& [config, expected] : kCases) {
    EXPECT_NE(error_of(config).find(expected), std::string::npos) << error_of(config);
  }
}

}  // namespace
}  // namespace lmtp
