#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "byte_alphabet.h"
#include "lmtp/tokenizer/tokenizer.h"
#include "support/temp_folder.h"

namespace lmtp::tokenizer {
namespace {

using testing::TempFolder;
using Tokens = std::vector<TokenId>;

// "Ġ" is the space. Ids: a 0, b 1, c 2, Ġ 3, ab 4, Ġab 5, abc 6, é's two bytes 7 and 8.
constexpr const char* kVocab = R"({"a":0,"b":1,"c":2,"Ġ":3,"ab":4,"Ġab":5,"abc":6,"Ã":7,"©":8})";

std::string tokenizer_json(const std::string& merges, const std::string& added = "[]",
                           const std::string& model_extra = "",
                           const std::string& pre_tokenizer = R"("add_prefix_space":false)") {
  return R"({"version":"1.0","added_tokens":)" + added +
         R"(,"normalizer":null,"pre_tokenizer":{"type":"ByteLevel",)" + pre_tokenizer +
         R"(},"decoder":{"type":"ByteLevel"},"model":{"type":"BPE",)" + model_extra +
         R"("vocab":)" + kVocab + R"(,"merges":)" + merges + "}}";
}

constexpr const char* kMerges = R"(["a b","Ġ ab","ab c"])";

std::unique_ptr<Tokenizer> load(const std::string& json) {
  const TempFolder folder;
  folder.write("tokenizer.json", json);
  auto loaded = load_tokenizer(folder.path());
  if (!loaded) {
    ADD_FAILURE() << loaded.error().message;
    return nullptr;
  }
  return std::move(*loaded);
}

std::string added_token(int id, const std::string& content, const std::string& flags) {
  return R"({"id":)" + std::to_string(id) + R"(,"content":")" + content + R"(",)" + flags + "}";
}

TEST(ByteBpe, MergesWordsAndGivesTheirBytesBack) {
  const auto tokenizer = load(tokenizer_json(kMerges));
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(*tokenizer->encode("abc ab ac"), (Tokens{6, 5, 3, 0, 2}));
  EXPECT_EQ(*tokenizer->encode(""), Tokens{});
  EXPECT_EQ(tokenizer->token_bytes(5), " ab");
  EXPECT_EQ(tokenizer->token_bytes(7), "\xC3");
  EXPECT_EQ(tokenizer->token_bytes(99), "");
  EXPECT_EQ(tokenizer->token_bytes(-1), "");
  EXPECT_EQ(tokenizer->vocab_size(), 9);
  EXPECT_EQ(tokenizer->bos_id(), -1);
}

// Other ids would be worse than none.
TEST(ByteBpe, APatternThatTakesTooLongIsAnError) {
  const auto tokenizer = load(R"({"pre_tokenizer":{"type":"Sequence","pretokenizers":[
      {"type":"Split","pattern":{"Regex":"(\\p{L}+)+!|x"},"behavior":"Isolated"},
      {"type":"ByteLevel","use_regex":false,"add_prefix_space":false}]},
      "decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{"a":0,"x":1},"merges":[]}})");
  ASSERT_NE(tokenizer, nullptr);
  const std::string bad = std::string(40, 'a') + "x";
  EXPECT_NE(tokenizer->encode(bad).error().message.find("takes too long"), std::string::npos);
  EXPECT_FALSE(tokenizer->encode_continuation(bad).ok());
  EXPECT_EQ(*tokenizer->encode("aax"), (Tokens{0, 0, 1}));  // the next text is not the worse for it
}

TEST(ByteBpe, ReadsMergesAsPairsToo) {
  const auto strings = load(tokenizer_json(kMerges));
  const auto pairs = load(tokenizer_json(R"([["a","b"],["Ġ","ab"],["ab","c"]])"));
  ASSERT_TRUE(strings && pairs);
  for (const char* text : {"abc", " ab", "abcabc ab", "cab"}) {
    EXPECT_EQ(*strings->encode(text), *pairs->encode(text)) << text;
  }
}

TEST(ByteBpe, DecodesBytesThatAreNoTextAsReplacement) {
  const auto tokenizer = load(tokenizer_json(kMerges));
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->decode(Tokens{0, 7, 8}), "a\xC3\xA9");
  EXPECT_EQ(tokenizer->decode(Tokens{7, 0}),
            "\xEF\xBF\xBD"
            "a");
}

TEST(ByteBpe, BytesWithoutATokenAreLeftOutOrUnknown) {
  const auto without = load(tokenizer_json(kMerges));
  const auto with = load(tokenizer_json(kMerges, "[]", R"("unk_token":"c",)"));
  const auto fused = load(tokenizer_json(kMerges, "[]", R"("unk_token":"c","fuse_unk":true,)"));
  ASSERT_TRUE(without && with && fused);
  EXPECT_EQ(*without->encode("axxb"), (Tokens{4}));
  EXPECT_EQ(*with->encode("axxb"), (Tokens{0, 2, 2, 1}));
  EXPECT_EQ(*fused->encode("axxb"), (Tokens{0, 2, 1}));
}

TEST(ByteBpe, IgnoreMergesTakesWholeWordsFirst) {
  // Without the last merge "abc" cannot be built.
  const std::string merges = R"(["a b","Ġ ab"])";
  const auto plain = load(tokenizer_json(merges));
  const auto whole = load(tokenizer_json(merges, "[]", R"("ignore_merges":true,)"));
  ASSERT_TRUE(plain && whole);
  EXPECT_EQ(*plain->encode("abc"), (Tokens{4, 2}));
  EXPECT_EQ(*whole->encode("abc"), (Tokens{6}));
}

TEST(ByteBpe, PutsASpaceInFrontWhereAsked) {
  const auto tokenizer =
      load(tokenizer_json(kMerges, "[" + added_token(9, "<s>", R"("special":true)") + "]", "",
                          R"("add_prefix_space":true)"));
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(*tokenizer->encode("ab"), (Tokens{5}));
  EXPECT_EQ(*tokenizer->encode(" ab"), (Tokens{5}));
  EXPECT_EQ(*tokenizer->encode("ab<s>ab"), (Tokens{5, 9, 5}));
}

TEST(ByteBpe, AddedTokensComeFirst) {
  const auto tokenizer =
      load(tokenizer_json(kMerges, "[" + added_token(9, "<a>", R"("special":true)") + "," +
                                       added_token(10, "<a>b", R"("special":true)") + "," +
                                       added_token(11, "c a", R"("special":false)") + "]"));
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(*tokenizer->encode("ab<a>c"), (Tokens{4, 9, 2}));
  EXPECT_EQ(*tokenizer->encode("<a>b<a>"), (Tokens{10, 9}));  // the longest
  EXPECT_EQ(*tokenizer->encode("bc ab"), (Tokens{1, 11, 1}));
  EXPECT_EQ(tokenizer->decode(Tokens{11, 9}), "c a<a>");
  EXPECT_TRUE(tokenizer->is_special(9));
  EXPECT_FALSE(tokenizer->is_special(11));
  EXPECT_FALSE(tokenizer->is_special(0));
  EXPECT_FALSE(tokenizer->is_special(1000));
  EXPECT_EQ(tokenizer->vocab_size(), 12);
}

TEST(ByteBpe, SpecialTokensAreNotFoundInPlainText) {
  for (const char* normalized : {"false", "true"}) {
    const std::string flags = std::string(R"("special":true,"normalized":)") + normalized;
    const auto tokenizer = load(tokenizer_json(
        kMerges, "[" + added_token(9, "ca", flags) + "," + added_token(10, "cab", flags) + "," +
                     added_token(11, "c b", R"("special":false)") + "]"));
    ASSERT_NE(tokenizer, nullptr);
    const auto encode = [&](std::string_view text, const std::vector<TextRange>& plain) {
      return *tokenizer->encode_around(text, plain);
    };
    EXPECT_EQ(encode("cabca", {}), (Tokens{10, 9}));
    EXPECT_EQ(encode("cabca", {{0, 3}}), (Tokens{2, 4, 9}));
    EXPECT_EQ(encode("cabca", {{2, 3}}), (Tokens{9, 1, 9}));  // the shorter one
    EXPECT_EQ(encode("cabca", {{3, 5}}), (Tokens{10, 2, 0}));
    EXPECT_EQ(encode("cabca", {{1, 1}}), (Tokens{2, 4, 9}));        // an empty one, inside
    EXPECT_EQ(encode("cabca", {{0, 0}, {3, 3}}), (Tokens{10, 9}));  // at the ends
    EXPECT_EQ(encode("ac ba", {{0, 5}}), (Tokens{0, 11, 0}));       // not special
    EXPECT_EQ(encode("abc", {{1, 2}}), (Tokens{6}));                // words go on across
  }
}

TEST(ByteBpe, AddedTokensTakeWhiteSpaceWhereTheySaySo) {
  const auto tokenizer = load(
      tokenizer_json(kMerges, "[" + added_token(9, "<l>", R"("special":true,"lstrip":true)") + "," +
                                  added_token(10, "<r>", R"("special":true,"rstrip":true)") + "]"));
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(*tokenizer->encode("a  <l> a"), (Tokens{0, 9, 3, 0}));
  EXPECT_EQ(*tokenizer->encode("a <r>  a"), (Tokens{0, 3, 10, 0}));
  EXPECT_EQ(*tokenizer->encode("<r> <l>"), (Tokens{10, 9}));  // the space belongs to the first
}

TEST(ByteBpe, SingleWordTokensStandAlone) {
  const auto tokenizer = load(tokenizer_json(
      kMerges, "[" + added_token(9, "ab", R"("special":false,"single_word":true)") + "]"));
  ASSERT_NE(tokenizer, nullptr);
  // "ab" is in the vocabulary, whose id stands.
  EXPECT_EQ(*tokenizer->encode("ab"), (Tokens{4}));
  EXPECT_EQ(*tokenizer->encode("c ab"), (Tokens{2, 3, 4}));   // found, so the space is alone
  EXPECT_EQ(*tokenizer->encode("c abc"), (Tokens{2, 5, 2}));  // not found
  EXPECT_EQ(*tokenizer->encode("c ab\xC3\xA9"), (Tokens{2, 5, 7, 8}));
}

TEST(ByteBpe, ReadsBytesThatAreNoTextAsReplacement) {
  // U+FFFD is EF BF BD, of which this vocabulary has no byte.
  const auto tokenizer = load(tokenizer_json(kMerges, "[]", R"("unk_token":"c",)"));
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(*tokenizer->encode("a\xFF"
                               "b"),
            (Tokens{0, 2, 2, 2, 1}));
}

TEST(ByteBpe, ReadsVocabJsonAndMergesTxt) {
  const TempFolder folder;
  folder.write("vocab.json", R"({"a":0,"b":1,"Ġ":2,"ab":3,"<|endoftext|>":4,"<":5,"<s>":6})");
  folder.write("merges.txt", "#version: 0.2\na b\r\n\n");
  folder.write("special_tokens_map.json", R"({"bos_token":{"content":"<s>"}})");
  folder.write("config.json", R"({"bos_token_id":0,"eos_token_id":[4,5]})");
  auto loaded = load_tokenizer(folder.path());
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const Tokenizer& tokenizer = **loaded;
  EXPECT_EQ(*tokenizer.encode("ab a<s>b<|endoftext|>"), (Tokens{3, 2, 0, 6, 1, 4}));
  EXPECT_EQ(tokenizer.bos_id(), 6);
  EXPECT_EQ(tokenizer.eos_id(), 4);
  EXPECT_TRUE(tokenizer.is_special(4));
}

TEST(ByteBpe, EncodesInSeveralThreadsAtOnce) {
  const auto tokenizer = load(tokenizer_json(kMerges));
  ASSERT_NE(tokenizer, nullptr);
  std::vector<std::thread> threads;
  std::vector<Tokens> results(4);
  for (Tokens& result : results) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) result = *tokenizer->encode("abc ab ac");
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Tokens& result : results) EXPECT_EQ(result, (Tokens{6, 5, 3, 0, 2}));
}

TEST(ByteAlphabet, SpellsEveryByteOnce) {
  std::vector<bool> seen(256);
  for (char32_t c = 0x21; c < 0x144; ++c) {
    std::string spelling;
    if (c < 0x80) {
      spelling = static_cast<char>(c);
    } else {
      spelling = {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
    }
    std::string bytes;
    if (!append_spelt_bytes(spelling, bytes)) continue;
    ASSERT_EQ(bytes.size(), 1U);
    EXPECT_FALSE(seen[static_cast<unsigned char>(bytes[0])]) << static_cast<std::uint32_t>(c);
    seen[static_cast<unsigned char>(bytes[0])] = true;
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 256);
  std::string out = "kept";
  EXPECT_FALSE(append_spelt_bytes("a b", out));
  EXPECT_EQ(out, "kept");
}

}  // namespace
}  // namespace lmtp::tokenizer
