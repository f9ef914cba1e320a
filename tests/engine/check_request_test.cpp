#include <gtest/gtest.h>

#include "lmtp/engine/engine.h"

namespace lmtp::engine {
namespace {

ModelLimits limits() { return {.vocab_size = 100, .context_length = 16, .eos_ids = {}}; }

std::string refusal(const Request& request) {
  const Result<void> result = check_request(request, limits());
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

}  // namespace
}  // namespace lmtp::engine
