// BPE over characters: unknown ones, and bytes in their place.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bpe.h"

namespace lmtp::tokenizer {
namespace {

using Tokens = std::vector<TokenId>;

std::unique_ptr<Bpe> make(Bpe::Options options, const std::vector<std::string>& vocab,
                          const std::vector<std::string>& merges = {}) {
  BpeBuilder builder(std::move(options));
  std::int64_t id = 0;
  for (const std::string& token : vocab) EXPECT_TRUE(builder.add_token(token, id++).ok());
  for (const std::string& merge : merges) EXPECT_TRUE(builder.add_merge(merge).ok());
  return builder.take();
}

Tokens tokens_of(const Bpe& bpe, std::string_view word) {
  Tokens out = {99};  // what is there already stays
  bpe.append_tokens(word, out);
  EXPECT_EQ(out.front(), 99);
  return {out.begin() + 1, out.end()};
}

Bpe::Options options(bool fuse_unk, bool byte_fallback) {
  Bpe::Options made;
  made.unk_token = "<unk>";
  made.fuse_unk = fuse_unk;
  made.byte_fallback = byte_fallback;
  return made;
}

TEST(CharBpe, MergesCharacters) {
  const auto bpe = make({}, {"a", "é", "aé", "éa"}, {"a é", "é a"});
  EXPECT_EQ(tokens_of(*bpe, "aéa"), (Tokens{2, 0}));
  EXPECT_EQ(tokens_of(*bpe, "éa"), (Tokens{3}));
  EXPECT_EQ(tokens_of(*bpe, "axa"), (Tokens{0, 0}));  // no unk: nothing
  EXPECT_EQ(bpe->find("aé"), 2);
  EXPECT_EQ(bpe->find("x"), -1);
}

TEST(CharBpe, UnknownCharacters) {
  const std::vector<std::string> vocab = {"<unk>", "a"};
  EXPECT_EQ(tokens_of(*make(options(false, false), vocab), "axyazx"), (Tokens{1, 0, 0, 1, 0, 0}));
  EXPECT_EQ(tokens_of(*make(options(true, false), vocab), "axyazx"), (Tokens{1, 0, 1, 0}));
}

TEST(CharBpe, BytesInThePlaceOfUnknownCharacters) {
  const std::vector<std::string> vocab = {"<unk>", "a", "<0xC3>", "<0xA9>", "<0x78>"};
  const auto bpe = make(options(true, true), vocab);
  EXPECT_EQ(tokens_of(*bpe, "aéx"), (Tokens{1, 2, 3, 4}));
  // No token for C3 AA's second byte: unknown, and held back past the bytes that follow.
  EXPECT_EQ(tokens_of(*bpe, "êxa"), (Tokens{4, 0, 1}));
  EXPECT_EQ(tokens_of(*bpe, "êê"), (Tokens{0}));
}

TEST(CharBpe, KnowsWhetherTokensCrossMarks) {
  EXPECT_TRUE(make({}, {"_", "a", "_a", "__", "__a"})->never_crosses("_"));
  EXPECT_FALSE(make({}, {"_", "a", "a_"})->never_crosses("_"));
  EXPECT_FALSE(make({}, {"_", "a", "_a_"})->never_crosses("_"));
  EXPECT_FALSE(make({}, {"a"})->never_crosses("_"));  // an unknown mark may fuse with others
  Bpe::Options whole_words;
  whole_words.ignore_merges = true;
  EXPECT_FALSE(make(whole_words, {"_", "a"})->never_crosses("_"));
}

TEST(ByteBpeModel, TokensThatTheAlphabetCannotSpell) {
  Bpe::Options byte_level;
  byte_level.byte_level = true;
  const auto bpe = make(byte_level, {"a", "  ", "Ġ"});
  EXPECT_EQ(bpe->find("  "), 1);
  EXPECT_EQ(bpe->find("Ġ"), 2);
  EXPECT_EQ(bpe->text(1), "  ");
  EXPECT_EQ(bpe->text(2), " ");
  EXPECT_EQ(tokens_of(*bpe, "  "), (Tokens{2, 2}));
}

}  // namespace
}  // namespace lmtp::tokenizer
