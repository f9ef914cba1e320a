#include "lmtp/request/sampling_params.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace lmtp {
namespace {

using Ids = std::vector<TokenId>;

TokenMask mask_of(int num_bits, const Ids& allowed) {
  TokenMask mask;
  mask.words.resize(static_cast<std::size_t>(num_bits + 63) / 64);
  for (const TokenId id : allowed) {
    mask.words[static_cast<std::size_t>(id) / 64] |= std::uint64_t{1} << id % 64;
  }
  return mask;
}

TEST(TokenMaskTest, AllowsOtherTokensOfTheVocabulary) {
  for (const int vocab_size : {64, 65, 100, 127, 128}) {
    const TokenId last = vocab_size - 1;
    const TokenMask mask = mask_of(vocab_size, {3, last});
    EXPECT_TRUE(mask.allows_other({}, vocab_size));
    EXPECT_TRUE(mask.allows_other(Ids{last}, vocab_size));
    EXPECT_TRUE(mask.allows_other(Ids{3, 4, 3}, vocab_size));
    EXPECT_FALSE(mask.allows_other(Ids{last, 4, 3, last}, vocab_size)) << vocab_size;
    EXPECT_FALSE(mask_of(vocab_size, {}).allows_other({}, vocab_size));
  }
}

TEST(TokenMaskTest, BitsBeyondTheVocabularyDoNotCount) {
  const TokenMask mask = mask_of(128, {7, 100, 127});
  EXPECT_TRUE(mask.allows_other(Ids{7}, 101));
  EXPECT_FALSE(mask.allows_other(Ids{7}, 100));
  EXPECT_FALSE(mask.allows_other(Ids{7}, 64));
  EXPECT_FALSE(mask.allows_other({}, 7));
  EXPECT_FALSE(mask.allows_other(Ids{7, 100, 127}, 1000)) << "words that the mask does not have";
}

TEST(SamplingParamsTest, EndIdsAreThoseOfTheModelUnlessIgnored) {
  SamplingParams params;
  params.stop_token_ids = {9};
  EXPECT_EQ(params.end_ids(Ids{1, 2}), (Ids{9, 1, 2}));
  params.ignore_eos = true;
  EXPECT_EQ(params.end_ids(Ids{1, 2}), Ids{9});
}

}  // namespace
}  // namespace lmtp
