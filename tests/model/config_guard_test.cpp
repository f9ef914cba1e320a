// What a config.json asks for that is not served: refused with the reason, or noted under force.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lmtp/model/model_config.h"
#include "read_config.h"

namespace lmtp {
namespace {

// Refused with all of `parts` in the reason; read, with the same in its notes, under force.
void expect_needs_force(const std::string& config, const std::vector<std::string>& parts) {
  const auto refused = read(config);
  ASSERT_FALSE(refused.ok()) << config;
  const auto forced = read(config, {.force = true});
  ASSERT_TRUE(forced.ok()) << forced.error().message;
  ASSERT_EQ(forced->notes.size(), 1U) << config;
  for (const std::string& part : parts) {
    EXPECT_NE(refused.error().message.find(part), std::string::npos) << refused.error().message;
    EXPECT_NE(forced->notes[0].find(part), std::string::npos) << forced->notes[0];
  }
  EXPECT_NE(refused.error().message.find("--force"), std::string::npos);
}

TEST(ConfigGuardTest, AnotherClassThanTheLanguageModelIsRefused) {
  expect_needs_force(
      R"({"model_type": "qwen2", "architectures": ["Qwen2ForSequenceClassification"]})",
      {"'Qwen2ForSequenceClassification'", "Qwen2ForCausalLM"});
  expect_needs_force(R"({"model_type": "gpt2", "architectures": ["GPT2DoubleHeadsModel"]})",
                     {"GPT2LMHeadModel"});
  for (const char* right : {R"(["LlamaForCausalLM"])", R"(["LLaMAForCausalLM"])", "[]", "null"}) {
    const auto config =
        read(std::string(R"({"model_type": "llama", "architectures": )") + right + "}");
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_TRUE(config->notes.empty());
  }
  EXPECT_EQ(read(R"({"model_type": "llama", "architectures": []})")->architecture,
            "LlamaForCausalLM");
}

TEST(ConfigGuardTest, TheClassWithoutAHeadHasNone) {
  for (const char* config : {R"({"model_type": "qwen3", "architectures": ["Qwen3Model"]})",
                             R"({"model_type": "gpt2", "architectures": ["GPT2Model"]})",
                             R"({"model_type": "gemma3_text", "architectures": ["Gemma3TextModel"],
                                 "tie_word_embeddings": false})"}) {
    const auto read_one = read(config);
    ASSERT_TRUE(read_one.ok()) << read_one.error().message;
    EXPECT_FALSE(read_one->has_head);
    EXPECT_TRUE(read_one->tied_embeddings && !read_one->settles_head);
    EXPECT_NE(read_one->notes.at(0).find("has no output head"), std::string::npos);
  }
  EXPECT_TRUE(read(R"({"model_type": "qwen3"})")->has_head);
}

TEST(ConfigGuardTest, EncodersAreNamedWithTheRemedy) {
  const auto config =
      read(R"({"model_type": "xlm-roberta", "architectures": ["XLMRobertaModel"]})");
  ASSERT_FALSE(config.ok());
  EXPECT_NE(config.error().message.find("is an encoder"), std::string::npos);
  EXPECT_NE(config.error().message.find("text-embeddings-inference"), std::string::npos);
}

TEST(ConfigGuardTest, QuantisedWeightsAreNamedWithTheRemedy) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"("quantization_config": {"quant_method": "gptq", "bits": 3})", "(gptq)"},
      {R"("quantization_config": {"quant_method": "bitnet"})", "(bitnet)"},
      {R"("quantization_config": {"load_in_4bit": true})", "(bitsandbytes)"},
      {R"("compression_config": {"quant_method": "compressed-tensors"})", "(compressed-tensors)"},
      {R"("quantization": {"group_size": 64, "bits": 4})", "quantization: the weights"},
  };
  for (const auto& [settings, name] : kCases) {
    expect_needs_force(std::string(R"({"model_type": "llama", )") + settings + "}",
                       {name, "model.dequantize()"});
  }
  for (const char* none : {R"("quantization_config": null)", R"("quantization_config": {})"}) {
    EXPECT_TRUE(read(std::string(R"({"model_type": "llama", )") + none + "}").ok()) << none;
  }
}

TEST(ConfigGuardTest, HeadsOfAllLayersAreBounded) {
  const auto config = read(R"({"model_type": "internlm2", "num_attention_heads": 131072,
                               "head_dim": 512, "num_hidden_layers": 4096})");
  ASSERT_FALSE(config.ok());
  EXPECT_NE(config.error().message.find("allowed are so many"), std::string::npos);
}

TEST(ConfigGuardTest, CodeOfTheRepositorysOwnIsRefused) {
  expect_needs_force(R"({"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"],
                     "auto_map": {"AutoModelForCausalLM": "modeling_qwen.Qwen2ForCausalLM"}})",
                     {"auto_map", "modeling_qwen.Qwen2ForCausalLM"});
  expect_needs_force(R"({"model_type": "llama", "auto_map": {"AutoConfig": "a--b.LlamaConfig"}})",
                     {"a--b.LlamaConfig"});
  // The name of the library's class does not make the code the library's.
  expect_needs_force(R"({"model_type": "llama",
                     "auto_map": {"AutoModelForCausalLM": "modeling_llama.LlamaForCausalLM"}})",
                     {"modeling_llama"});
  expect_needs_force(R"({"model_type": "phi3",
                     "auto_map": {"AutoModelForCausalLM": "modeling_my_phi3.Phi3ForCausalLM"}})",
                     {"modeling_my_phi3"});
  for (const char* harmless :
       {R"({"model_type": "llama", "auto_map": {"AutoTokenizer": ["tokenizer.Mine", null]}})",
        R"({"model_type": "phi3", "auto_map": {"AutoTokenizer": "Xenova/gpt-4o",
            "AutoConfig": "configuration_phi3.Phi3Config",
            "AutoModelForCausalLM": "microsoft/Phi-3--modeling_phi3.Phi3ForCausalLM"}})",
        R"({"model_type": "hunyuan_v1_moe", "auto_map": {
            "AutoConfig": "configuration_hunyuan.HunYuanConfig",
            "AutoModelForCausalLM": "hunyuan.HunYuanMoEV1ForCausalLM"}})",
        R"({"model_type": "falcon", "auto_map": {
            "AutoConfig": "configuration_falcon.FalconConfig",
            "AutoModel": "modeling_falcon.FalconModel",
            "AutoModelForSequenceClassification": "modeling_falcon.FalconForSequenceClassification",
            "AutoModelForCausalLM": "modeling_falcon.FalconForCausalLM"}})"}) {
    const auto config = read(harmless);
    EXPECT_TRUE(config.ok()) << config.error().message;
  }
}

TEST(ConfigGuardTest, AttentionOfAnotherKindIsRefused) {
  expect_needs_force(R"({"model_type": "qwen2", "is_causal": false})", {"is_causal"});
  expect_needs_force(R"({"model_type": "gemma2", "use_bidirectional_attention": true})", {"later"});
  expect_needs_force(R"({"model_type": "gpt2", "add_cross_attention": true})", {"cross"});
  EXPECT_TRUE(read(R"({"model_type": "gemma2", "use_bidirectional_attention": null})").ok());
}

TEST(ConfigGuardTest, ATextModelOfOursInsideALargerOneIsReadAlone) {
  const auto config = read(R"({"model_type": "llava", "eos_token_id": 7,
      "architectures": ["LlavaForConditionalGeneration"], "image_token_index": 130,
      "text_config": {"model_type": "llama", "architectures": ["VLlama3ForCausalLM"],
                      "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 131},
      "vision_config": {"model_type": "clip_vision_model", "hidden_size": 16}})");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->model_type, "llama");
  EXPECT_EQ(config->architecture, "LlamaForCausalLM");
  EXPECT_EQ(config->outer_model_type, "llava");
  EXPECT_EQ(config->hidden_size, 64);
  EXPECT_EQ(config->eos_ids, std::vector<TokenId>{7});
  EXPECT_EQ(config->notes,
            std::vector<std::string>{"the text model (llama) of 'llava' alone, without vision"});
  EXPECT_EQ(read(R"({"model_type": "llava", "text_config": {"model_type": "llama"}})")->eos_ids,
            std::vector<TokenId>{2});
}

TEST(ConfigGuardTest, WhatAFileQuotesIsOneBoundedLine) {
  std::string name = "A\\nB";
  while (name.size() < 5000) name += "ä";
  const auto config = read(R"({"model_type": "llama", "architectures": [")" + name + R"("]})");
  ASSERT_FALSE(config.ok());
  const std::string& message = config.error().message;
  EXPECT_LT(message.size(), 2000U);
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_NE(message.find("A B"), std::string::npos) << message;
  EXPECT_NE(message.find("ä ... (--force"), std::string::npos) << message;
}

TEST(ConfigGuardTest, WhatIsNotOursInsideALargerOneIsRefused) {
  const auto error_of = [](const std::string& config) {
    const auto result = read(config);
    return result.ok() ? "" : result.error().message;
  };
  EXPECT_NE(error_of(R"({"model_type": "gemma3n", "text_config": {"model_type": "gemma3n_text"}})")
                .find("'gemma3n' is not supported"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"model_type": "llava", "text_config": 3})").find("an object"),
            std::string::npos);
  // The outer model's own weights and code count, and so do the text model's.
  const std::string text = R"("text_config": {"model_type": "llama"})";
  EXPECT_NE(error_of(R"({"model_type": "x", "quantization_config": {"quant_method": "hqq"}, )" +
                     text + "}")
                .find("hqq"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"model_type": "x", "auto_map": {"AutoModel": "m.X"}, )" + text + "}")
                .find("auto_map"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"model_type": "llava", "text_config": {"model_type": "llama",
                         "quantization_config": {"quant_method": "hqq"}}})")
                .find("text_config: quantization_config"),
            std::string::npos);
  EXPECT_NE(
      error_of(R"({"model_type": "x", "architectures": ["XForTokenClassification"], )" + text + "}")
          .find("XForTokenClassification"),
      std::string::npos);
  EXPECT_NE(error_of(R"({"model_type": "paligemma", "text_config": {"model_type": "gemma2"},
                         "architectures": ["PaliGemmaForConditionalGeneration"]})")
                .find("paligemma"),
            std::string::npos);
}

}  // namespace
}  // namespace lmtp
