// Sampler: from a row of logits to a token and its log probability.
//
// In order: penalties, bias and mask (LogitsProcessor); the reported values, log sum exp and
// top_logprobs: natural logarithms of probabilities at temperature 1, in f32; then temperature,
// top_k, top_p and the draw, by a random number that depends on (seed, absolute position) alone.
// With raw_logprobs the reported values are those of the row before any of that.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "lmtp/base/result.h"
#include "lmtp/sampling/logits_processor.h"
#include "lmtp/scheduler/step_plan.h"

namespace lmtp::sampling {

class Nucleus;

// The error of a row that has a NaN or no possible token.
inline constexpr const char* kNoNumbers =
    "the model's logits at this position are not numbers, or no token is possible";

// Owner: the model agent, one for each worker; one thread at a time. `backend` must outlive it.
class Sampler {
 public:
  Sampler(const kernels::Backend& backend, int vocab_size);
  ~Sampler();
  Sampler(Sampler&&) noexcept;

  // Chooses the token that follows `tokens`. row: [vocab_size] f32, edited in place. top_logprobs
  // holds min(params.top_logprobs, kMaxTopLogprobs) entries, best first and ties by the lowest id,
  // and the chosen token at their end where it is not among them; impossible tokens (-inf) are left
  // out. The error: kNoNumbers.
  Result<scheduler::TokenResult> sample(std::span<float> row, const SamplingParams& params,
                                        std::span<const TokenId> tokens);

  // What sample() would report if it had chosen `token`, but without top_logprobs where none are
  // wanted.
  Result<scheduler::TokenResult> score(std::span<float> row, const SamplingParams& params,
                                       std::span<const TokenId> tokens, TokenId token);
  // The same of a row that is not edited.
  Result<scheduler::TokenResult> score(std::span<const float> row, TokenId token, int num_top = 0);

 private:
  struct Candidate {
    float value;
    TokenId id;
  };

  Result<kernels::LogSumExp> total_of(std::span<const float> row) const;
  void select_best(std::span<const float> row, std::int64_t count);
  void list_best(int num_top, const kernels::LogSumExp& total,
                 scheduler::TokenResult& result) const;
  TokenId draw(std::span<const float> row, float max, const SamplingParams& params, double number);
  void keep_best(std::span<const float> row, std::int64_t count);
  TokenId draw_of_weights(double number) const;

  const kernels::Backend& backend_;
  LogitsProcessor processor_;
  std::vector<float> raw_;             // of sample(): the row before it is edited, where wanted
  std::vector<float> weights_;         // [vocab_size] after temperature
  std::vector<float> values_;          // of select_best and keep_best while they run
  std::vector<std::int32_t> indices_;  // [vocab_size]
  std::vector<Candidate> best_;        // select_best's result: best first
  std::unique_ptr<Nucleus> nucleus_;
};

}  // namespace lmtp::sampling
