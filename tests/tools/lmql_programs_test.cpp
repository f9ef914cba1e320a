#include "lmtp-bench/lmql_programs.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "lmtp-bench/workload.h"

namespace lmtp::tools {
namespace {

using Ids = std::vector<TokenId>;

Answer answer(Ids tokens, FinishReason reason = FinishReason::kLength) {
  return {std::move(tokens), reason, {}};
}

TEST(LmqlChunks, SendThePromptAgainWithWhatCame) {
  const auto program = chunk_program({1, 2}, 20);
  auto step = program->next({});
  ASSERT_EQ(step.size(), 1U);
  EXPECT_EQ(step[0].prompt, (Ids{1, 2}));
  EXPECT_EQ(step[0].max_tokens, 16);
  EXPECT_TRUE(step[0].masked);
  const Ids came(16, 9);
  step = program->next({answer(came)});
  ASSERT_EQ(step.size(), 1U);
  EXPECT_EQ(step[0].prompt.size(), 18U);
  EXPECT_EQ(step[0].prompt.back(), 9);
  EXPECT_EQ(step[0].max_tokens, 4);  // what is left
  EXPECT_TRUE(step[0].masked);
  EXPECT_TRUE(program->next({answer({9, 9, 9, 9})}).empty());
}

TEST(LmqlChunks, EndWithTheText) {
  const auto program = chunk_program({1}, 100);
  program->next({});
  EXPECT_TRUE(program->next({answer({5, 0}, FinishReason::kStop)}).empty());
}

TEST(LmqlBeams, GoOnWithTheBestOfAll) {
  const auto program = beam_program({1}, 3, 2);
  auto step = program->next({});
  ASSERT_EQ(step.size(), 1U);  // all beams begin the same
  EXPECT_EQ(step[0].max_tokens, 1);
  EXPECT_EQ(step[0].top_logprobs, 2);
  EXPECT_FALSE(step[0].masked);

  Answer first = answer({5});
  first.top_logprobs = {{5, -0.5F}, {6, -1.0F}};
  step = program->next({first});
  ASSERT_EQ(step.size(), 2U);
  EXPECT_EQ(step[0].prompt, (Ids{1, 5}));
  EXPECT_EQ(step[1].prompt, (Ids{1, 6}));

  Answer left = answer({7});
  left.top_logprobs = {{7, -3.0F}, {8, -4.0F}};  // -3.5 and -4.5 in all
  Answer right = answer({7});
  right.top_logprobs = {{7, -0.1F}, {8, -2.0F}};  // -1.1 and -3.0
  step = program->next({left, right});
  ASSERT_EQ(step.size(), 2U);
  EXPECT_EQ(step[0].prompt, (Ids{1, 6, 7}));
  EXPECT_EQ(step[1].prompt, (Ids{1, 6, 8}));
  EXPECT_TRUE(program->next({left, right}).empty());
}

TEST(LmqlBeams, ABeamThatEndedIsNotGoneOnWith) {
  const auto program = beam_program({1}, 9, 2);
  program->next({});
  Answer end = answer({5}, FinishReason::kStop);
  end.top_logprobs = {{5, -0.5F}, {6, -1.0F}};
  EXPECT_TRUE(program->next({end}).empty());
}

TEST(LmqlScores, ComeAtOnceBehindOnePrefix) {
  const auto program = score_program({1, 2}, {{3}, {4, 5}});
  const auto step = program->next({});
  ASSERT_EQ(step.size(), 2U);
  EXPECT_EQ(step[0].prompt, (Ids{1, 2}));
  EXPECT_EQ(step[1].prompt, (Ids{1, 2}));
  EXPECT_EQ(step[1].scored, (Ids{4, 5}));
  EXPECT_TRUE(program->next({answer({3}), answer({4, 5})}).empty());
}

TEST(LmqlWorkload, TakesThePatternsInTurns) {
  WorkloadOptions options;
  options.vocab_size = 100;
  options.input_len = 6;
  options.prefix_len = 4;
  options.lmql = {LmqlPattern::kScores, LmqlPattern::kChunks, LmqlPattern::kBeams};
  options.lmql_scores = 3;
  options.lmql_score_len = 5;
  const auto scores = make_program(options, 3)->next({});
  ASSERT_EQ(scores.size(), 3U);
  EXPECT_EQ(scores[0].prompt, scores[2].prompt);
  EXPECT_EQ(scores[0].prompt.size(), 10U);
  EXPECT_EQ(scores[0].scored.size(), 5U);
  EXPECT_NE(scores[0].scored, scores[1].scored);
  EXPECT_TRUE(make_program(options, 1)->next({}).at(0).masked);
  EXPECT_EQ(make_program(options, 2)->next({}).at(0).top_logprobs, options.lmql_beams);
}

}  // namespace
}  // namespace lmtp::tools
