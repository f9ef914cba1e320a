// Reductions over one row of logits. They run on the calling thread: a caller has many rows.
#pragma once

#include <cstdint>

namespace lmtp::kernels {

struct Backend;

// The greatest element; NaNs are passed over. REQUIRES: count >= 1.
float row_max(const Backend& backend, const float* row, std::int64_t count);

// log(sum(exp(row))) as max + log_sum. The two stay apart because logits may be large (a bias of
// 1e8, say): one float would lose log_sum beside them.
struct LogSumExp {
  float max;
  float log_sum;  // log(sum(exp(row - max)))
};

// log_sum is NaN where an element is NaN or +inf, and -inf where all are -inf; else it is at least
// 0. REQUIRES: count >= 1.
LogSumExp row_logsumexp(const Backend& backend, const float* row, std::int64_t count);

// The log probability of an element of the row. REQUIRES: total.log_sum is finite.
inline float log_probability(float logit, const LogSumExp& total) {
  return (logit - total.max) - total.log_sum;
}

// to[i] = e^((row[i] - shift) / divisor). REQUIRES: divisor > 0; `to` is `row` or apart from it.
void row_exp(const Backend& backend, const float* row, std::int64_t count, float shift,
             float divisor, float* to);

// Writes the indices of elements >= threshold, ascending, and returns how many there are; where
// there are more than `capacity`, only that many are written. NaNs are passed over.
std::int64_t row_select_at_least(const Backend& backend, const float* row, std::int64_t count,
                                 float threshold, std::int32_t* indices, std::int64_t capacity);

}  // namespace lmtp::kernels
