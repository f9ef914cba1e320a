// What the files beside a tokenizer add to it.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lmtp/tokenizer/tokenizer.h"
#include "load_files.h"

namespace lmtp::tokenizer {
namespace {

using Tokens = std::vector<TokenId>;
using testing::Files;

std::string tokenizer_json(const std::string& added = "[]", const std::string& post = "null",
                           bool prefix_space = false) {
  return R"({"added_tokens":)" + added +
         R"(,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":)" +
         (prefix_space ? "true" : "false") +
         R"(},"decoder":{"type":"ByteLevel"},"post_processor":)" + post +
         R"(,"model":{"type":"BPE","vocab":{"a":0,"Ġ":1,"<s>":2},"merges":[]}})";
}

constexpr const char* kTemplate =
    R"({"type":"Sequence","processors":[{"type":"ByteLevel"},{"type":"TemplateProcessing",
        "single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}},
                  {"SpecialToken":{"id":"</s>","type_id":0}}],
        "special_tokens":{"<s>":{"id":"<s>","ids":[2],"tokens":["<s>"]}}}]})";

TEST(FolderConfig, AddsNamedTokensThatAreNotThere) {
  const auto tokenizer =
      testing::load_files({{"tokenizer.json", tokenizer_json()}, {"tokenizer_config.json", R"({
      "tokenizer_class":"PreTrainedTokenizerFast","added_tokens_decoder":{},
      "bos_token":"<s>","pad_token":"<pad>","additional_special_tokens":["<x>","<s>"]})"}});
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(*tokenizer->encode("<s><pad>a<x>"), (Tokens{2, 3, 0, 4}));
  EXPECT_EQ(tokenizer->vocab_size(), 5);
  EXPECT_TRUE(tokenizer->is_special(4));
  EXPECT_EQ(tokenizer->bos_id(), 2);
  EXPECT_EQ(tokenizer->eos_id(), -1);
}

// transformers writes int(1e30) for a tokenizer without a limit, Python NaN and Infinity.
TEST(FolderConfig, ReadsWhatPythonWrites) {
  const auto tokenizer =
      testing::load_files({{"tokenizer.json", tokenizer_json()},
                           {"tokenizer_config.json", R"({"bos_token":"<s>","x":-Infinity,
      "model_max_length":1000000000000000019884624838656,"y":[NaN]})"},
                           {"config.json", R"({"eos_token_id":[1],"rope":Infinity})"}});
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->bos_id(), 2);
  EXPECT_EQ(tokenizer->eos_id(), 1);
}

TEST(FolderConfig, FlagsOfTheDecoderTakeThePlaceOfOthers) {
  const std::string added = R"([{"id":3,"content":"<r>","special":false,"normalized":false}])";
  const std::string config = R"({"tokenizer_class":"PreTrainedTokenizerFast","eos_token":"<r>",
      "added_tokens_decoder":{"3":{"content":"<r>","rstrip":true,"normalized":false}}})";
  const auto plain = testing::load_files({{"tokenizer.json", tokenizer_json(added)}});
  const auto changed = testing::load_files(
      {{"tokenizer.json", tokenizer_json(added)}, {"tokenizer_config.json", config}});
  ASSERT_TRUE(plain && changed);
  EXPECT_EQ(*plain->encode("<r> a"), (Tokens{3, 1, 0}));
  EXPECT_FALSE(plain->is_special(3));
  EXPECT_EQ(*changed->encode("<r> a"), (Tokens{3, 0}));
  EXPECT_TRUE(changed->is_special(3));  // since it is eos
  EXPECT_EQ(changed->eos_id(), 3);
}

TEST(FolderConfig, OldFilesAreReadWithoutTheDecoder) {
  const Files files = {{"vocab.json", R"({"a":0,"b":1,"</s>":2})"},
                       {"merges.txt", "#version: 0.2\n"},
                       {"special_tokens_map.json", R"({"eos_token":"</s>","bos_token":
                         {"content":"</s>","lstrip":true,"normalized":true}})"},
                       {"added_tokens.json", R"({"<x>":3})"},
                       {"tokenizer_config.json", R"({"tokenizer_class":"GPT2Tokenizer",
                         "eos_token":"b","unk_token":null,"add_bos_token":true})"}};
  const auto tokenizer = testing::load_files(files);
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(*tokenizer->encode("a<x>a"), (Tokens{0, 3, 0}));
  EXPECT_FALSE(tokenizer->is_special(3));
  EXPECT_EQ(tokenizer->eos_id(), 2);  // the map comes after tokenizer_config.json
  EXPECT_TRUE(tokenizer->adds_bos());
}

TEST(FolderConfig, BosIsWhatTheTemplateBeginsWith) {
  const auto alone = testing::load_files({{"tokenizer.json", tokenizer_json("[]", kTemplate)}});
  const auto named = testing::load_files({{"tokenizer.json", tokenizer_json("[]", kTemplate)},
                                          {"config.json", R"({"bos_token_id":0})"}});
  const auto without = testing::load_files(
      {{"tokenizer.json", tokenizer_json()}, {"tokenizer_config.json", R"({"bos_token":"<s>"})"}});
  ASSERT_TRUE(alone && named && without);
  EXPECT_EQ(alone->bos_id(), 2);
  EXPECT_TRUE(alone->adds_bos());
  EXPECT_EQ(named->bos_id(), 0);
  EXPECT_FALSE(named->adds_bos());  // what is put in front is another token
  EXPECT_EQ(without->bos_id(), 2);
  EXPECT_FALSE(without->adds_bos());
}

TEST(FolderConfig, TheClassDecidesOnBosForLlama) {
  const auto made = [](const std::string& config) {
    return testing::load_files(
        {{"tokenizer.json", tokenizer_json("[]", kTemplate)}, {"tokenizer_config.json", config}});
  };
  EXPECT_TRUE(made(R"({"tokenizer_class":"LlamaTokenizer"})")->adds_bos());
  EXPECT_FALSE(
      made(R"({"tokenizer_class":"LlamaTokenizerFast","add_bos_token":false})")->adds_bos());
  EXPECT_FALSE(made(R"({"tokenizer_class":"GPTNeoXTokenizer","bos_token":"<s>"})")->adds_bos());
}

TEST(FolderConfig, PrefixSpaceIsTheConfigs) {
  const std::string json = tokenizer_json("[]", "null", true);
  EXPECT_EQ(*testing::load_files({{"tokenizer.json", json}})->encode("a"), (Tokens{1, 0}));
  EXPECT_EQ(*testing::load_files({{"tokenizer.json", json}, {"tokenizer_config.json", "{}"}})
                 ->encode("a"),
            (Tokens{0}));
  EXPECT_EQ(*testing::load_files({{"tokenizer.json", tokenizer_json()},
                                  {"tokenizer_config.json", R"({"add_prefix_space":true})"}})
                 ->encode("a"),
            (Tokens{1, 0}));
}

TEST(FolderConfig, ModelTypeNamesTheClass) {
  const Files files = {{"vocab.json", R"({"1":0,"2":1,"12":2,"é":3})"},
                       {"merges.txt", "1 2\n"},
                       {"config.json", R"({"model_type":"qwen2","eos_token_id":[1,0]})"}};
  const auto tokenizer = testing::load_files(files);
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(*tokenizer->encode("12"), (Tokens{0, 1}));  // one digit at a time
  EXPECT_EQ(*tokenizer->encode("<|endoftext|>"), (Tokens{4}));
  EXPECT_EQ(tokenizer->eos_id(), 4);
}

}  // namespace
}  // namespace lmtp::tokenizer
