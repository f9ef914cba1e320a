// Streams whose results are compared bit for bit: prompts and parameters by number, so that each
// stream of a test is another.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <numeric>
#include <vector>

#include "lmtp/scheduler/step_plan.h"

namespace lmtp::testing {

inline std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }

inline void expect_same_bits(const std::vector<scheduler::TokenResult>& a,
                             const std::vector<scheduler::TokenResult>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].token, b[i].token) << "token " << i;
    ASSERT_EQ(bits(a[i].logprob), bits(b[i].logprob)) << "token " << i;
    ASSERT_EQ(bits(a[i].measured.entropy.value_or(-1.0F)),
              bits(b[i].measured.entropy.value_or(-1.0F)))
        << "token " << i;
    ASSERT_EQ(a[i].measured.rank, b[i].measured.rank) << "token " << i;
    ASSERT_EQ(a[i].top_logprobs.size(), b[i].top_logprobs.size()) << "token " << i;
    for (std::size_t k = 0; k < a[i].top_logprobs.size(); ++k) {
      ASSERT_EQ(a[i].top_logprobs[k].token, b[i].top_logprobs[k].token);
      ASSERT_EQ(bits(a[i].top_logprobs[k].logprob), bits(b[i].top_logprobs[k].logprob));
    }
  }
}

// Of several streams.
inline void expect_same_bits(const std::vector<std::vector<scheduler::TokenResult>>& a,
                             const std::vector<std::vector<scheduler::TokenResult>>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    SCOPED_TRACE(i);
    expect_same_bits(a[i], b[i]);
  }
}

// A prompt that differs from number to number.
inline std::vector<TokenId> prompt_of(int number, int length) {
  std::vector<TokenId> prompt(static_cast<std::size_t>(length));
  std::iota(prompt.begin(), prompt.end(), number * 7);
  for (TokenId& token : prompt) token = token * 31 % 97;
  return prompt;
}

inline SamplingParams params_of(int number) {
  SamplingParams params;
  params.temperature = number % 2 == 0 ? 0.0F : 0.7F;
  params.top_p = number % 3 == 0 ? 0.9F : 1.0F;
  params.top_k = number % 5 == 0 ? 7 : 0;
  params.min_p = number % 5 == 1 ? 0.02F : 0.0F;
  params.typical_p = number % 3 == 1 ? 0.8F : 1.0F;
  params.repetition_penalty = number % 4 == 1 ? 1.3F : 1.0F;
  params.seed = static_cast<std::uint64_t>(number);
  params.top_logprobs = 3;
  params.measures = {.entropy = number % 3 != 0, .rank = number % 4 == 0};
  return params;
}

}  // namespace lmtp::testing
