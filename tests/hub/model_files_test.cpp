#include "model_files.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/temp_folder.h"

namespace lmtp::hub {
namespace {

using testing::TempFolder;
using Names = std::vector<std::string>;

const std::string kCommit(40, 'a');

std::string listing_of(const Names& names, const std::string& commit = kCommit) {
  std::string text = R"({"id": "org/name", "sha": ")" + commit + R"(", "siblings": [)";
  for (const std::string& name : names) {
    text += (name == names.front() ? "" : ", ") + (R"({"rfilename": ")" + name + R"("})");
  }
  return text + "]}";
}

std::string refusal_of(const std::string& json) {
  const auto listing = parse_listing(json);
  return listing.ok() ? "" : listing.error().message;
}

TEST(ParseListing, TakesCommitAndNames) {
  const auto listing = parse_listing(listing_of({"config.json", "onnx/model..2.onnx", ".git"}));
  ASSERT_TRUE(listing.ok()) << listing.error().message;
  EXPECT_EQ(listing->commit, kCommit);
  EXPECT_EQ(listing->files, (Names{"config.json", "onnx/model..2.onnx", ".git"}));
  EXPECT_TRUE(listing->has("config.json"));
  EXPECT_FALSE(listing->has("config"));
}

TEST(ParseListing, RefusesWhatIsNoListing) {
  EXPECT_NE(refusal_of("<html>a login page</html>"), "");
  EXPECT_NE(refusal_of(""), "");
  EXPECT_NE(refusal_of("[]"), "");
  EXPECT_NE(refusal_of("{}").find("'sha'"), std::string::npos);
  for (const std::string& commit :
       {std::string("main"), std::string("../../../../x"), std::string(40, 'A'), kCommit + "a"}) {
    EXPECT_NE(refusal_of(listing_of({}, commit)).find("'sha'"), std::string::npos) << commit;
  }
  EXPECT_NE(refusal_of("{\"sha\": \"" + kCommit + "\"}").find("'siblings'"), std::string::npos);
  EXPECT_NE(refusal_of("{\"sha\": \"" + kCommit + "\", \"siblings\": [1]}").find("'rfilename'"),
            std::string::npos);
  EXPECT_NE(refusal_of(std::string(100'000, '[')), "");
}

TEST(ParseListing, RefusesNamesThatLeadOut) {
  for (const char* name : {"/etc/passwd", "../config.json", "a/../../b", "..", ".", "a//b", "a/",
                           "", "a\\\\b", "a\\u0000b", "a\\nb"}) {
    const std::string json = R"({"sha": ")" + kCommit + R"(", "siblings": [{"rfilename": ")" +
                             std::string(name) + R"("}]})";
    EXPECT_NE(refusal_of(json).find("leads out"), std::string::npos) << name;
  }
}

TEST(ChooseFiles, ByPurpose) {
  const Listing listing{kCommit,
                        {"README.md", "config.json", "generation_config.json", "tokenizer.json",
                         "tokenizer.model", "model.safetensors", "nested/config.json"}};
  EXPECT_EQ(small_files(listing, Purpose::kTokenizer),
            (Names{"config.json", "tokenizer.json", "tokenizer.model"}));
  EXPECT_EQ(small_files(listing, Purpose::kServe),
            (Names{"config.json", "tokenizer.json", "tokenizer.model", "generation_config.json"}));
}

TEST(ChooseFiles, WhatSaysHowEmbeddingsAreMade) {
  const Names modules = {"modules.json", "config_sentence_transformers.json",
                         "sentence_bert_config.json", "1_Pooling/config.json"};
  Listing listing{kCommit, modules};
  for (const char* other :
       {"onnx/config.json", "1_Pooling/pytorch_model.bin", "1_/a/config.json"}) {
    listing.files.emplace_back(other);
  }
  EXPECT_EQ(small_files(listing, Purpose::kServe), modules);
  EXPECT_EQ(small_files(listing, Purpose::kTokenizer), Names());
  for (int i = 0; i < 30; ++i) listing.files.push_back("2_" + std::to_string(i) + "/config.json");
  EXPECT_EQ(small_files(listing, Purpose::kServe).size(), 16U) << "a list has an end";
}

TEST(ChooseFiles, AllThatTokenizersAreMadeOf) {
  const Names rare = {"chat_template.jinja", "tekken.json", "spiece.model", "a.tiktoken"};
  Listing listing{kCommit, rare};
  listing.files.insert(listing.files.end(), {"sub/b.tiktoken", ".tiktoken", "README.md"});
  EXPECT_EQ(small_files(listing, Purpose::kTokenizer), rare);
  for (int i = 0; i < 10; ++i) listing.files.push_back(std::to_string(i) + ".tiktoken");
  EXPECT_EQ(small_files(listing, Purpose::kTokenizer).size(), 3U + 4U) << "a list has an end";
  listing.files = {"additional_chat_templates/tool_use.jinja", "additional_chat_templates/a.txt",
                   "other/b.jinja", "chat_template.jinja"};
  EXPECT_EQ(small_files(listing, Purpose::kTokenizer),
            (Names{"chat_template.jinja", "additional_chat_templates/tool_use.jinja"}));
  for (const Names& files :
       {Names{"tokenizer.json"}, Names{"tokenizer.model"}, Names{"merges.txt", "vocab.json"},
        Names{"tekken.json"}, Names{"spiece.model"}, Names{"README.md", "qwen.tiktoken"}}) {
    EXPECT_TRUE(has_tokenizer(files)) << files.back();
  }
  EXPECT_FALSE(has_tokenizer({"config.json", "vocab.json", "tokenizer_config.json", ".tiktoken"}));
}

TEST(ChooseFiles, SafetensorsBeforePickles) {
  const Names all = {"pytorch_model.bin.index.json", "pytorch_model.bin",
                     "model.safetensors.index.json", "model.safetensors"};
  Listing listing{kCommit, all};
  for (auto expected = all.rbegin(); expected != all.rend(); ++expected) {
    const auto weights = weight_files(listing);
    ASSERT_TRUE(weights.ok());
    EXPECT_EQ(weights->file, *expected);
    EXPECT_EQ(weights->is_index, expected->ends_with("index.json"));
    listing.files.pop_back();
  }
  listing.files = {"a.Q4.gguf", "b.gguf", "tf_model.h5"};
  const auto none = weight_files(listing);
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().message.find("(but GGUF, TensorFlow)"), std::string::npos)
      << none.error().message;
}

TEST(ReadIndex, NamesEachFileOnceAndNothingElsewhere) {
  const TempFolder folder;
  const std::string path = folder.path() + "/index.json";
  folder.write("index.json", R"({"weight_map": {"a": "m-2.bin", "b": "m-1.bin", "c": "m-2.bin"}})");
  const auto files = read_index(path);
  ASSERT_TRUE(files.ok()) << files.error().message;
  EXPECT_EQ(*files, (Names{"m-1.bin", "m-2.bin"}));
  for (const char* wrong :
       {R"({"weight_map": {"a": "../m.bin"}})", R"({"weight_map": {"a": "sub/m.bin"}})",
        R"({"weight_map": {"a": ".hidden"}})", R"({"weight_map": {"a": 1}})",
        R"({"weight_map": {}})", R"({"weight_map": 3})", "{}", "", "no JSON"}) {
    folder.write("index.json", wrong);
    EXPECT_FALSE(read_index(path).ok()) << wrong;
  }
  EXPECT_FALSE(read_index(folder.path() + "/none").ok());
}

TEST(MissingIn, LooksForWhatThePurposeNeeds) {
  const TempFolder folder;
  EXPECT_EQ(missing_in(folder.path(), Purpose::kServe), "config.json");
  EXPECT_EQ(missing_in(folder.path(), Purpose::kTokenizer), "tokenizer.json");
  folder.write("vocab.json", "{}");
  EXPECT_EQ(missing_in(folder.path(), Purpose::kTokenizer), "tokenizer.json");
  folder.write("merges.txt", "");
  EXPECT_EQ(missing_in(folder.path(), Purpose::kTokenizer), "");
  folder.write("config.json", "{}");
  EXPECT_EQ(missing_in(folder.path(), Purpose::kServe), "model.safetensors");
  folder.write("model.safetensors.index.json", R"({"weight_map": {"a": "s1", "b": "s2"}})");
  folder.write("s1", "");
  EXPECT_NE(missing_in(folder.path(), Purpose::kServe).find("s2"), std::string::npos);
  folder.write("s2", "");
  EXPECT_EQ(missing_in(folder.path(), Purpose::kServe), "");
}

}  // namespace
}  // namespace lmtp::hub
