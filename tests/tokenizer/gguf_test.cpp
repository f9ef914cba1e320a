// Tokenizers of GGUF files: what is refused, and rules that no folder has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "gguf_assembler.h"
#include "lmtp/tokenizer/tokenizer.h"
#include "temp_folder.h"

namespace lmtp::tokenizer {
namespace {

using lmtp::testing::GgufAssembler;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<std::unique_ptr<Tokenizer>> load_gguf(const GgufAssembler& assembler) {
  const lmtp::testing::TempFolder folder;
  folder.write("model.gguf", assembler.bytes());
  return load_tokenizer(folder.path() + "/model.gguf");
}

template <typename T>
void add_numbers(GgufAssembler& file, std::string_view key, std::uint32_t type,
                 const std::vector<T>& values) {
  std::string all =
      GgufAssembler::number(type) + GgufAssembler::number(std::uint64_t{values.size()});
  for (const T value : values) all += GgufAssembler::number(value);
  file.key(key, 9, all);
}

// Three letters, their merge, and a control token.
GgufAssembler byte_level(const std::string& pre) {
  GgufAssembler file;
  file.key("tokenizer.ggml.model", "gpt2");
  if (!pre.empty()) file.key("tokenizer.ggml.pre", pre);
  file.key("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "c", "ab", "<end>"});
  add_numbers<std::int32_t>(file, "tokenizer.ggml.token_type", 5, {1, 1, 1, 1, 3});
  file.key("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
  file.key("tokenizer.ggml.bos_token_id", 4);
  return file;
}

// As sentencepiece's, with a mark alone and behind a letter.
GgufAssembler scored() {
  GgufAssembler file;
  file.key("tokenizer.ggml.model", "llama");
  file.key("tokenizer.ggml.tokens",
           std::vector<std::string>{"<unk>", "<s>", "</s>", "\u2581", "a", "\u2581a", "<0x0A>"});
  add_numbers<std::int32_t>(file, "tokenizer.ggml.token_type", 5, {2, 3, 3, 1, 1, 1, 6});
  add_numbers<float>(file, "tokenizer.ggml.scores", 6, {0, 0, 0, -3, -2, -1, 0});
  return file;
}

std::string gguf_error(GgufAssembler file, const std::function<void(GgufAssembler&)>& change) {
  change(file);
  const auto tokenizer = load_gguf(file);
  return tokenizer ? "no error" : tokenizer.error().message;
}

TEST(GgufTokenizerTest, BosIsAsTheFileSaysElseByThePreTokenizer) {
  const auto gpt2 = load_gguf(byte_level("gpt-2"));
  ASSERT_TRUE(gpt2) << gpt2.error().message;
  EXPECT_THAT(*(*gpt2)->encode("abc<end>a"), ElementsAre(3, 2, 4, 0));
  EXPECT_EQ((*gpt2)->bos_id(), 4);
  EXPECT_EQ((*gpt2)->eos_id(), -1);
  EXPECT_TRUE((*gpt2)->is_special(4));
  EXPECT_FALSE((*gpt2)->adds_bos());
  EXPECT_TRUE((*load_gguf(byte_level("llama-bpe")))->adds_bos());
  GgufAssembler without = byte_level("llama-bpe");
  without.key("tokenizer.ggml.add_bos_token", 7, GgufAssembler::number(std::uint8_t{0}));
  EXPECT_FALSE((*load_gguf(without))->adds_bos());
  GgufAssembler by_number = byte_level("llama-bpe");
  by_number.key("tokenizer.ggml.add_bos_token", 0);
  EXPECT_FALSE((*load_gguf(by_number))->adds_bos());
}

TEST(GgufTokenizerTest, AKeyOfAnotherTypeIsNotAnAbsentOne) {
  const auto error_of_text = [](std::string_view key) {
    return gguf_error(scored(), [&](GgufAssembler& file) { file.key(key, "false"); });
  };
  for (const char* key : {"tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_space_prefix",
                          "tokenizer.ggml.bos_token_id"}) {
    EXPECT_THAT(error_of_text(key), HasSubstr("'" + std::string(key) + "' has the type string"));
  }
  EXPECT_THAT(
      gguf_error(byte_level(""), [](GgufAssembler& file) { file.key("tokenizer.ggml.pre", 1); }),
      HasSubstr("'tokenizer.ggml.pre' has the type u32, and a string is needed"));
}

TEST(GgufTokenizerTest, ASpaceStandsInFrontUnlessTheFileSaysNo) {
  const auto with = load_gguf(scored());
  ASSERT_TRUE(with) << with.error().message;
  EXPECT_THAT(*(*with)->encode("a\na"), ElementsAre(5, 6, 4));
  EXPECT_TRUE((*with)->adds_bos());
  EXPECT_EQ((*with)->bos_id(), 1);
  EXPECT_EQ((*with)->eos_id(), 2);
  GgufAssembler without = scored();
  without.key("tokenizer.ggml.add_space_prefix", 7, GgufAssembler::number(std::uint8_t{0}));
  EXPECT_THAT(*(*load_gguf(without))->encode("a\na"), ElementsAre(4, 6, 4));
}

TEST(GgufTokenizerTest, EveryKnownPreTokenizerIsMade) {
  for (const char* name : {"gpt-2", "llama-bpe", "dbrx", "qwen2", "tekken", "gpt-4o", "smollm",
                           "deepseek-coder", "falcon"}) {
    const auto tokenizer = load_gguf(byte_level(name));
    ASSERT_TRUE(tokenizer) << name << ": " << tokenizer.error().message;
    EXPECT_THAT(*(*tokenizer)->encode("ab"), ElementsAre(3)) << name;
  }
}

TEST(GgufTokenizerTest, RefusesByName) {
  const auto nothing = [](GgufAssembler&) {};
  EXPECT_THAT(gguf_error(byte_level("klingon"), nothing),
              HasSubstr("tokenizer.ggml.pre: 'klingon' is not known; known are gpt-2 phi-2"));
  EXPECT_THAT(gguf_error(byte_level(""), nothing), HasSubstr("tokenizer.ggml.pre: is missing"));
  // Names are compared as a whole.
  EXPECT_THAT(gguf_error(byte_level("gpt-2 phi-2"), nothing), HasSubstr("is not known"));
  EXPECT_THAT(gguf_error(byte_level("gpt"), nothing), HasSubstr("'gpt' is not known"));
  GgufAssembler bert;
  bert.key("tokenizer.ggml.model", "bert");
  bert.key("tokenizer.ggml.tokens", std::vector<std::string>{"a"});
  EXPECT_THAT(gguf_error(bert, nothing),
              HasSubstr("'bert' is not supported; supported are gpt2, llama"));
  EXPECT_THAT(gguf_error(GgufAssembler(), nothing),
              HasSubstr("'tokenizer.ggml.tokens' is missing"));
}

TEST(GgufTokenizerTest, RefusesWhatDoesNotFitTogether) {
  GgufAssembler file;
  file.key("tokenizer.ggml.model", "llama");
  file.key("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"});
  EXPECT_THAT(gguf_error(file, [](GgufAssembler&) {}),
              HasSubstr("'tokenizer.ggml.scores' is missing"));
  EXPECT_THAT(gguf_error(file,
                         [](GgufAssembler& other) {
                           add_numbers<float>(other, "tokenizer.ggml.scores", 6, {1});
                         }),
              HasSubstr("'tokenizer.ggml.scores' has 1 entries, and there are 2 tokens"));
  EXPECT_THAT(gguf_error(file,
                         [](GgufAssembler& other) {
                           add_numbers<float>(other, "tokenizer.ggml.scores", 6,
                                              {1, std::numeric_limits<float>::quiet_NaN()});
                         }),
              HasSubstr("token 1: its text is not UTF-8, or its score no finite number"));
  GgufAssembler merges;
  merges.key("tokenizer.ggml.model", "gpt2");
  merges.key("tokenizer.ggml.pre", "gpt-2");
  merges.key("tokenizer.ggml.tokens", std::vector<std::string>{"a", "\xFF"});
  EXPECT_THAT(gguf_error(merges, [](GgufAssembler&) {}),
              HasSubstr("token 1: its text is not UTF-8"));
  EXPECT_THAT(gguf_error(byte_level("gpt-2"),
                         [](GgufAssembler& other) {
                           other.key("tokenizer.ggml.eos_token_id", 99);  // no token's: none
                         }),
              HasSubstr("no error"));
}

}  // namespace
}  // namespace lmtp::tokenizer
