// Words that are kept out. Beside a grammar: tests/constraint/stream_test.cpp.
#include "lmtp/request/bad_words.h"

#include <gtest/gtest.h>

#include <array>

namespace lmtp {
namespace {

constexpr int kVocabSize = 70;

// The tokens that may not follow, by begin() and by compute() alike.
std::vector<TokenId> forbidden(const MaskSource& source, const std::vector<TokenId>& before,
                               const std::vector<TokenId>& generated) {
  std::array<std::uint32_t, (kVocabSize + 31) / 32> words{};
  NextTokens next{words};
  bool is_done = false;
  EXPECT_TRUE(
      source.begin(before, generated, next, [&](Result<void> done) { is_done = done.ok(); }));
  EXPECT_TRUE(is_done);
  const auto at_once = words;
  words.fill(0);
  EXPECT_TRUE(source.compute(before, generated, next).ok());
  EXPECT_EQ(words, at_once);
  EXPECT_TRUE(next.forced.empty() && next.draws);
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < kVocabSize; ++id) {
    if ((words[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1U) == 0) ids.push_back(id);
  }
  return ids;
}

std::shared_ptr<const MaskSource> kept_out(std::vector<std::vector<TokenId>> ids) {
  return without(std::make_shared<const BadWords>(BadWords{{}, std::move(ids)}), nullptr);
}

TEST(BadWordsTest, TheLastTokenOfAWordDoesNotFollowTheOthers) {
  using Ids = std::vector<TokenId>;
  const auto source = kept_out({{69}, {4, 5}, {5, 5, 6}, {4, 40}});
  const auto fork = source->forked();
  for (const MaskSource* one : {source.get(), fork.get()}) {
    EXPECT_EQ(forbidden(*one, {}, {}), Ids{69});
    EXPECT_EQ(forbidden(*one, {}, {4}), (Ids{5, 40, 69}));
    EXPECT_EQ(forbidden(*one, {}, {4, 5}), Ids{69});
    EXPECT_EQ(forbidden(*one, {}, {1, 5, 5}), (Ids{6, 69}));
    EXPECT_EQ(forbidden(*one, {}, {5, 5, 4}), (Ids{5, 40, 69}));
    EXPECT_EQ(forbidden(*one, {4}, {}), Ids{69}) << "the prompt does not count";
    EXPECT_EQ(forbidden(*one, {5}, {5}), Ids{69});
    EXPECT_EQ(forbidden(*one, {}, {}), Ids{69}) << "it is of the tokens alone";
  }
}

TEST(BadWordsTest, TokensThatTheModelDoesNotHaveAreNoMatter) {
  EXPECT_TRUE(forbidden(*kept_out({{1000}, {1000, 2}, {2, 1000}}), {}, {2}).empty());
}

}  // namespace
}  // namespace lmtp
