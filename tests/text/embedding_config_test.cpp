// What folders of sentence-transformers say of embeddings.
#include "lmtp/text/embedding_config.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "temp_folder.h"

namespace lmtp::text {
namespace {

class EmbeddingConfigTest : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const { folder_.write(name, text); }
  // Modules of these names, each in a folder of its own but for the first.
  void write_modules(const std::vector<std::string>& names) const {
    std::string text;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const std::string path = i == 0 ? "" : std::to_string(i) + "_" + names[i];
      text += (i == 0 ? "[" : ", ") + std::string(R"({"type": "sentence_transformers.models.)") +
              names[i] + R"(", "path": ")" + path + "\"}";
    }
    write("modules.json", text + "]");
  }
  LoadedEmbeddings read() const { return read_embedding_config(folder_.path()); }
  std::string error() const {
    const auto config = read();
    return config ? "" : config.error().message;
  }

  const testing::TempFolder folder_;
};

TEST_F(EmbeddingConfigTest, AFolderWithoutModulesHasTheDefaults) {
  const auto config = read();
  ASSERT_TRUE(config.ok());
  EXPECT_EQ((*config)->pooling, Pooling::kLast);
  EXPECT_TRUE((*config)->normalizes);
  EXPECT_FALSE((*config)->is_trained);
  EXPECT_FALSE((*config)->judge);
}

TEST_F(EmbeddingConfigTest, PoolingIsReadInItsOldAndItsNewForm) {
  write_modules({"Transformer", "Pooling"});
  for (const auto& [text, pooling] :
       {std::pair(R"({"pooling_mode": "mean"})", Pooling::kMean),
        std::pair(R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false})",
                  Pooling::kFirst),
        std::pair(R"({"pooling_mode_mean_tokens": true})", Pooling::kMean),
        std::pair(R"({"pooling_mode_lasttoken": true, "include_prompt": false})",
                  Pooling::kLast)}) {
    write("1_Pooling/config.json", text);
    const auto config = read();
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_EQ((*config)->pooling, pooling) << text;
    EXPECT_FALSE((*config)->normalizes) << "no module says so";
    EXPECT_TRUE((*config)->is_trained);
  }
}

TEST_F(EmbeddingConfigTest, PromptsAndLengthsAreRead) {
  write_modules({"Transformer", "Pooling", "Normalize"});
  write("1_Pooling/config.json", R"({"pooling_mode": "lasttoken"})");
  write("config_sentence_transformers.json",
        R"({"prompts": {"query": "Q: ", "document": ""}, "default_prompt_name": "query"})");
  write("sentence_bert_config.json", R"({"max_seq_length": 512, "do_lower_case": false})");
  const auto config = read();
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_TRUE((*config)->normalizes);
  EXPECT_EQ((*config)->prompts.at("query"), "Q: ");
  EXPECT_EQ((*config)->default_prompt, "query");
  EXPECT_EQ((*config)->max_tokens, 512);
}

TEST_F(EmbeddingConfigTest, ARerankerIsKnownByItsModuleOrItsName) {
  write_modules({"Transformer", "LogitScore"});
  write("1_LogitScore/config.json", R"({"true_token_id": 7, "false_token_id": 8})");
  const auto config = read();
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ((*config)->judge->yes, 7);
  EXPECT_EQ((*config)->judge->no, 8);
  const auto named = read_embedding_config(folder_.path() + "/models--Qwen--Qwen3-Reranker-0.6B");
  EXPECT_EQ((*named)->judge->yes, -1);
  write("1_LogitScore/config.json", R"({"true_token_id": 7})");
  EXPECT_NE(error().find("false_token_id is missing"), std::string::npos) << error();
}

TEST_F(EmbeddingConfigTest, WhatIsNotComputedIsNamed) {
  const auto expect = [&](const std::string& part) {
    EXPECT_NE(error().find(part), std::string::npos) << error();
    const bool helps = error().find("allowed") != std::string::npos ||
                       error().find("need") != std::string::npos ||
                       error().find("expected") != std::string::npos;
    EXPECT_TRUE(helps) << error();
  };
  write_modules({"Transformer", "Pooling", "Dense"});
  expect("1_Pooling/config.json: is missing");
  for (const auto& [text, part] :
       {std::pair(R"({"pooling_mode": "max"})", "'max'"),
        std::pair(R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true})",
                  "'cls' and 'mean'"),
        std::pair("{}", "not given"),
        std::pair(R"({"pooling_mode": "mean", "include_prompt": false})", "include_prompt")}) {
    write("1_Pooling/config.json", text);
    expect(part);
  }
  write("1_Pooling/config.json", R"({"pooling_mode": "mean"})");
  expect("the module 'Dense'");
  write_modules({"Transformer", "Pooling"});
  write("sentence_bert_config.json", R"({"do_lower_case": true})");
  expect("do_lower_case");
  write("config_sentence_transformers.json", R"({"default_prompt_name": "x"})");
  expect("default_prompt_name");
  write("modules.json", R"([{"type": "a.Transformer", "path": "../x"}])");
  expect("no path inside");
  for (const char* wrong : {"{}", "[]", "[3]", "3"}) {
    write("modules.json", wrong);
    expect("modules.json");
  }
}

}  // namespace
}  // namespace lmtp::text
