// LogitsProcessor: applies a request's penalties and bias to a row of logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/request/sampling_params.h"

namespace lmtp::sampling {

// Whether a LogitsProcessor changes anything for these parameters.
inline bool has_edits(const SamplingParams& params) {
  return params.has_penalties() || params.logit_bias != nullptr || params.mask != nullptr;
}

// Owner: a Sampler; one thread at a time. Keeps one count for each token of the vocabulary.
class LogitsProcessor {
 public:
  explicit LogitsProcessor(int vocab_size);

  // Edits row [vocab_size] f32 in place: the repetition penalty (as HF: a positive logit is
  // divided, a negative one multiplied), the presence and frequency penalties, all over the
  // stream's tokens so far; then the bias is added; then -inf where the mask has no bit. Tokens and
  // ids outside the vocabulary are ignored.
  void process(std::span<float> row, const SamplingParams& params, std::span<const TokenId> tokens);

 private:
  void apply_penalties(std::span<float> row, const SamplingParams& params,
                       std::span<const TokenId> tokens);

  std::vector<std::int32_t> counts_;  // [vocab_size], all zero between two calls
};

}  // namespace lmtp::sampling
