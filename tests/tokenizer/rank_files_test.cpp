// tekken.json and tiktoken's files, by hand; tests/e2e compares them with the libraries.
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

// a b ab, the byte 0xC3, and one beyond the size.
std::string tekken(const std::string& more) {
  return R"({"config":{"pattern":"\\p{L}+|.","default_vocab_size":8,
             "default_num_special_tokens":4},
      "vocab":[{"token_bytes":"YQ=="},{"token_bytes":"Yg=="},{"token_bytes":"YWI="},
               {"token_bytes":"ww=="},{"token_bytes":"YWJh"}])" +
         more + "}";
}

TEST(Tekken, SpecialTokensComeFirst) {
  const auto tokenizer = testing::load_files({{"tekken.json", tekken(R"(,"special_tokens":[
      {"rank":1,"token_str":"<s>","is_control":true},
      {"rank":0,"token_str":"<unk>","is_control":true}])")}});
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(*tokenizer->encode("abba"), (Tokens{6, 5, 4}));
  EXPECT_EQ(*tokenizer->encode("aba<s>b<SPECIAL_3>"), (Tokens{6, 4, 1, 5, 3}));
  EXPECT_EQ(tokenizer->vocab_size(), 8);
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_TRUE(tokenizer->adds_bos());
  EXPECT_TRUE(tokenizer->is_special(3));
  EXPECT_FALSE(tokenizer->is_special(4));
  EXPECT_EQ(tokenizer->token_bytes(7), "\xC3");
  EXPECT_EQ(tokenizer->decode(Tokens{1, 6, 5}), "<s>abb");
}

TEST(Tekken, TheFirstFilesNameNoSpecialTokens) {
  const auto tokenizer = testing::load_files({{"tekken.json", R"({"config":{"pattern":"."},
      "vocab":[{"token_bytes":"YQ=="}]})"}});
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(*tokenizer->encode("[INST]a</s>"), (Tokens{3, 20, 2}));
}

TEST(Tiktoken, IdsAreRanksAndSpecialTokensFollow) {
  const auto tokenizer =
      testing::load_files({{"tokenizer.model", "YQ== 0\nYg== 1\nYWI= 2\nIA== 3\n"},
                           {"tokenizer_config.json", R"({"eos_token":"<e>",
      "added_tokens_decoder":{"5":{"content":"<e>","special":true}}})"}});
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(*tokenizer->encode("ab b<e>"), (Tokens{2, 3, 1, 5}));
  EXPECT_EQ(*tokenizer->encode("<|reserved_token_4|>"), (Tokens{4}));
  EXPECT_EQ(tokenizer->eos_id(), 5);
  EXPECT_FALSE(tokenizer->adds_bos());
}

TEST(Tiktoken, ALlamaHasNoTokensThatItsFilesDoNotName) {
  const auto tokenizer =
      testing::load_files({{"tokenizer.model", "YQ== 0\nYg== 1\n"},
                           {"config.json", R"({"model_type":"llama","bos_token_id":1})"}});
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->vocab_size(), 2);
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->eos_id(), -1);
}

TEST(WordLevel, SpacesComeBackWhereNoDecoderIsNamed) {
  const auto tokenizer = testing::load_files({{"tokenizer.json", R"({"pre_tokenizer":
      {"type":"WhitespaceSplit"},"decoder":null,"model":{"type":"WordLevel",
      "vocab":{"a":0,"?":1,"bc":2},"unk_token":"?"}})"}});
  ASSERT_NE(tokenizer, nullptr);
  const Tokens ids = {0, 2, 1, 0};
  EXPECT_EQ(*tokenizer->encode(" a  bc\nxyz a"), ids);
  EXPECT_EQ(tokenizer->decode(ids), "a bc ? a");
  EXPECT_EQ(tokenizer->first_token_bytes(0), "a");
  EXPECT_EQ(tokenizer->token_bytes(2), " bc");
}

// Falcon's order: what follows ByteLevel sees letters that stand for bytes.
TEST(ByteLevel, MayStandAnywhere) {
  const std::string rest = R"(,"decoder":{"type":"ByteLevel"},"model":{"type":"BPE",
      "vocab":{"1":0,"Ã":1,"©":2,"Ã©":3,"11":4,"Ġ":5,"Ġ1":6},
      "merges":["Ã ©","Ġ 1","1 1"]}})";
  const auto after = testing::load_files({{"tokenizer.json", R"({"pre_tokenizer":{"type":"Sequence",
      "pretokenizers":[{"type":"ByteLevel","use_regex":false,"add_prefix_space":false},
      {"type":"Split","pattern":{"Regex":"©|1"},"behavior":"Isolated"}]})" +
                                                                 rest}});
  const auto normal =
      testing::load_files({{"tokenizer.json", R"({"normalizer":{"type":"ByteLevel"})" + rest}});
  ASSERT_TRUE(after && normal);
  EXPECT_EQ(*after->encode("11 1é"), (Tokens{0, 0, 5, 0, 1, 2}));
  EXPECT_EQ(*normal->encode("11 1é"), (Tokens{4, 6, 3}));
  EXPECT_EQ(normal->decode(Tokens{4, 6, 3, 1}), "11 1é\uFFFD");
  EXPECT_EQ(normal->token_bytes(6), " 1");
}

}  // namespace
}  // namespace lmtp::tokenizer
