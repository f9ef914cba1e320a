#include "unigram.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lmtp::tokenizer {
namespace {

using Tokens = std::vector<TokenId>;

std::unique_ptr<Unigram> make(std::vector<Unigram::Piece> pieces, TokenId unk_id = 0,
                              bool byte_fallback = false) {
  auto made = Unigram::make(std::move(pieces), unk_id, byte_fallback);
  if (!made) {
    ADD_FAILURE() << made.error().message;
    return nullptr;
  }
  return std::move(*made);
}

Tokens tokens_of(const Unigram& model, std::string_view word) {
  Tokens out;
  model.append_tokens(word, out);
  return out;
}

TEST(Unigram, TakesTheLikeliestWay) {
  const auto model = make({{"<unk>", 0.0},
                           {"a", 0.0},
                           {"b", 0.0},
                           {"c", 0.0},
                           {"d", 0.0},
                           {"cd", 1.0},
                           {"ab", 2.0},
                           {"abc", 5.0},
                           {"abcd", 10.0}});
  EXPECT_EQ(tokens_of(*model, "abcd"), (Tokens{8}));
  EXPECT_EQ(tokens_of(*model, "abcdacd"), (Tokens{8, 1, 5}));
  EXPECT_EQ(tokens_of(*model, "abcc"), (Tokens{7, 3}));
  EXPECT_EQ(tokens_of(*model, "abcdacdxx"), (Tokens{8, 1, 5, 0}));  // unknown ones are one
  EXPECT_EQ(tokens_of(*model, "xaéé"), (Tokens{0, 1, 0}));
}

TEST(Unigram, OfEqualsTheFirstWayStays) {
  const auto model = make({{"<unk>", 0.0}, {"a", -1.0}, {"aa", -2.0}, {"aaa", -3.0}});
  EXPECT_EQ(tokens_of(*model, "aaa"), (Tokens{3}));
}

TEST(Unigram, BytesInThePlaceOfUnknownCharacters) {
  const auto model =
      make({{"<unk>", 0.0}, {"<0xC3>", -1.0}, {"<0xA9>", -1.0}, {"a", -1.0}}, 0, true);
  EXPECT_EQ(tokens_of(*model, "aé"), (Tokens{3, 1, 2}));
  // One that has no byte makes its whole run unknown.
  EXPECT_EQ(tokens_of(*model, "aé?"), (Tokens{3, 0}));
}

TEST(Unigram, FindsSpellings) {
  const auto model = make({{"<unk>", 0.0}, {"ab", -1.0}, {"", 0.0}, {"ab", -2.0}});
  EXPECT_EQ(model->find("ab"), 3);
  EXPECT_EQ(model->find("a"), -1);
  EXPECT_EQ(model->find("abc"), -1);
  EXPECT_EQ(model->text(1), "ab");
  EXPECT_EQ(model->text(4), "");
  EXPECT_EQ(model->text(-1), "");
}

TEST(Unigram, UnkMustBeThere) {
  const auto model = Unigram::make({{"a", 0.0}}, 1, false);
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.error().message.find("unk_id is 1"), std::string::npos);
}

}  // namespace
}  // namespace lmtp::tokenizer
