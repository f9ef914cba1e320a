#include <gtest/gtest.h>

#include "lmtp/engine/engine.h"

namespace lmtp::engine {
namespace {

ModelLimits limits() { return {.vocab_size = 100, .context_length = 16, .eos_ids = {}}; }

std::string refusal(const Request& request, const ModelLimits& limited = limits()) {
  const Result<void> result = check_request(request, limited);
  return result ? "" : result.error().message;
}

TEST(CheckRequest, TakesWhatFits) {
  Request request;
  request.prompt = std::vector<TokenId>(15, 99);
  EXPECT_EQ(refusal(request), "");
  request.params.max_tokens = 1'000'000;  // clamped later, not refused
  EXPECT_EQ(refusal(request), "");
}

TEST(CheckRequest, NamesTheFieldAndWhatIsAllowed) {
  Request request;
  EXPECT_EQ(refusal(request), "prompt: is empty, at least one token is needed");
  request.prompt = {1, 100};
  EXPECT_EQ(refusal(request),
            "prompt[1]: token id 100 is not in the vocabulary, allowed are 0 to 99");
  request.prompt = std::vector<TokenId>(16, 1);
  EXPECT_EQ(refusal(request),
            "prompt: has 16 tokens, allowed are at most 15 (one less than the context)");
  request.prompt.back() = 100;
  EXPECT_EQ(refusal(request),
            "prompt: has 16 tokens, allowed are at most 15 (one less than the context)");
  request.prompt = {1};
  auto bias = std::make_shared<LogitBias>();
  bias->ids = {3, 100};
  bias->values = {1, 1};
  request.params.logit_bias = bias;
  EXPECT_EQ(refusal(request),
            "logit_bias: token id 100 is not in the vocabulary, allowed are 0 to 99");
}

TEST(CheckRequest, AScoreMayFillTheContextAndHaveNoPrompt) {
  Request request;
  request.kind = RequestKind::kScore;
  EXPECT_EQ(refusal(request), "scored: is empty, at least one token is needed");
  request.scored = std::vector<TokenId>(16, 1);
  EXPECT_EQ(refusal(request), "");
  request.prompt = {1};
  EXPECT_EQ(
      refusal(request),
      "scored: prompt and scored together are 17 tokens, allowed are at most 16 (the context)");
}

TEST(CheckRequest, TheOperatorMayAllowLessThanTheContext) {
  ModelLimits limited = limits();
  limited.max_total_tokens = 10;
  Request request;
  request.prompt = std::vector<TokenId>(9, 1);
  request.params.max_tokens = 100;
  EXPECT_EQ(refusal(request, limited), "");
  request.prompt.push_back(1);
  EXPECT_EQ(refusal(request, limited),
            "prompt: has 10 tokens, allowed are at most 9 (one less than --max-total-tokens)");
  limited.max_input_tokens = 7;
  EXPECT_EQ(refusal(request, limited),
            "prompt: has 10 tokens, allowed are at most 7 (--max-input-tokens)");
  EXPECT_EQ(check_request(request, limited).error().code, ErrorCode::kTooLong);

  request.kind = RequestKind::kScore;
  request.prompt.resize(6);
  request.scored = {1};
  EXPECT_EQ(refusal(request, limited), "");
  request.scored = {1, 1};
  EXPECT_EQ(refusal(request, limited),
            "scored: prompt and scored together are 8 tokens, allowed are at most 7 "
            "(--max-input-tokens)");
  limited.max_input_tokens = 0;
  request.scored.resize(5);
  EXPECT_EQ(refusal(request, limited),
            "scored: prompt and scored together are 11 tokens, allowed are at most 10 "
            "(--max-total-tokens)");
  limited.max_total_tokens = 1000;  // more than the context is no limit
  EXPECT_EQ(limited.total_tokens_max(), 16);
  EXPECT_EQ(limited.input_tokens_max(), 15);
}

TEST(CheckRequest, WhatDoesNotFitTheContextSaysSoByItsCode) {
  Request request;
  request.prompt = std::vector<TokenId>(16, 1);
  EXPECT_EQ(check_request(request, limits()).error().code, ErrorCode::kTooLong);
  request.kind = RequestKind::kScore;
  request.scored = {1};
  EXPECT_EQ(check_request(request, limits()).error().code, ErrorCode::kTooLong);
  request.scored = {100};
  request.prompt = {};
  EXPECT_EQ(check_request(request, limits()).error().code, ErrorCode::kInvalid);
}

TEST(CheckRequest, AMaskHasABitForEachTokenAndAllowsOne) {
  Request request;
  request.prompt = {1};
  TokenMask mask = {{0, std::uint64_t{1} << 35}, 13};  // token 99, the last
  const auto refusal_of = [&] {
    request.params.mask = std::make_shared<TokenMask>(mask);
    return refusal(request);
  };
  EXPECT_EQ(refusal_of(), "");
  mask.words[1] = std::uint64_t{1} << 36;  // only what is beyond the vocabulary
  EXPECT_EQ(refusal_of(), "mask: allows no token; at least one bit must be set");
  mask.words[0] = 1;
  EXPECT_EQ(refusal_of(), "");
  mask.num_bytes = 12;
  EXPECT_EQ(refusal_of(), "mask: has 12 bytes, allowed are 13 (a bit for each of 100 tokens)");
  mask = {{1, 0}, 14};
  EXPECT_EQ(refusal_of(), "mask: has 14 bytes, allowed are 13 (a bit for each of 100 tokens)");
}

TEST(CheckRequest, AMaskLeavesATokenWhereNoEndCanBeDrawn) {
  ModelLimits of_model = limits();
  of_model.eos_ids = {3};
  Request request;
  request.prompt = {1, 2};
  request.params.mask = std::make_shared<TokenMask>(
      TokenMask{{std::uint64_t{1} << 3 | std::uint64_t{1} << 7, std::uint64_t{1} << 36}, 13});
  request.params.stop_token_ids = {7};
  EXPECT_TRUE(check_request(request, of_model).ok());
  request.params.min_tokens = 1;
  EXPECT_EQ(check_request(request, of_model).error().message,
            "mask: allows only tokens that end the stream, and none of them can be drawn before "
            "min_tokens; at least one other bit must be set");
  request.num_resumed = 1;
  EXPECT_TRUE(check_request(request, of_model).ok()) << "there are so many already";
  request.num_resumed = 0;
  request.params.ignore_eos = true;
  EXPECT_TRUE(check_request(request, of_model).ok());
}

TEST(CheckRequest, StopTokensAreOfTheVocabularyAndWhatIsResumedOfThePrompt) {
  Request request;
  request.prompt = {1, 2};
  request.num_resumed = 2;
  request.params.stop_token_ids = {99};
  EXPECT_EQ(refusal(request), "");
  request.num_resumed = 3;
  EXPECT_EQ(refusal(request), "resumed: is 3; allowed are at most 2 (the tokens of the prompt)");
  request.params.stop_token_ids = {5, 100};
  EXPECT_EQ(refusal(request),
            "stop_token_ids[1]: token id 100 is not in the vocabulary, allowed are 0 to 99");
}

}  // namespace
}  // namespace lmtp::engine
