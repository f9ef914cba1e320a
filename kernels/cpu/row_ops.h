// Reductions over one row of logits, compiled for each instruction set: the parts of the op sample
// (sample.h) that pass over a whole vocabulary. They run on the calling thread.
#pragma once

#include <cstdint>

namespace lmtp::kernels {

// log(sum(exp(row))) as max + log_sum. The two stay apart because logits may be large (a bias of
// 1e8, say): one float would lose log_sum beside them.
struct LogSumExp {
  float max;
  float log_sum;  // log(sum(exp(row - max)))

  // REQUIRES: log_sum is finite.
  float log_probability(float logit) const { return (logit - max) - log_sum; }
};

// Tokens of log probabilities below this add nothing to an entropy: e^x would be no normal float,
// and -inf times 0 is no number.
inline constexpr float kNoProbability = -87.0F;

// REQUIRES of all: count >= 1.
struct RowOps {
  // The greatest element; NaNs are passed over.
  float (*max)(const float* row, std::int64_t count);
  // log_sum is NaN where an element is NaN or +inf, and -inf where all are -inf; else it is at
  // least 0.
  LogSumExp (*logsumexp)(const float* row, std::int64_t count);
  // -sum(p * log p) of the probabilities, 0 where p is. REQUIRES: `of` is the row's logsumexp(),
  // and its log_sum is finite.
  float (*entropy)(const float* row, std::int64_t count, LogSumExp of);
  // to[i] = draw_weight(row[i], max, temperature) (kernels/draw_weight.h), to the bit.
  void (*draw_weights)(const float* row, std::int64_t count, float max, float temperature,
                       float* to);
  // Writes the indices of elements >= threshold, ascending, and returns how many there are. NaNs
  // are passed over. indices: [count].
  std::int64_t (*select_at_least)(const float* row, std::int64_t count, float threshold,
                                  std::int32_t* indices);
};

}  // namespace lmtp::kernels
