// Sampling on a device: of each row of logits, only a small record is copied to the host. Steps and
// their order are those of lmtp/sampling/sampler.h, its twin on the host. Sums of weights are
// integers in units of 2^-40, where the host adds doubles: they do not depend on the order of
// addition, and a token differs from the host's only where the random number is on the edge between
// two.
#pragma once

#include <cstdint>

#include "kernels/matrix.h"
#include "kernels/stream.h"

namespace lmtp::kernels {

// Entries of top_logprobs and of their list, at most.
inline constexpr int kSampleTopMax = 1024;

struct TokenCount {
  std::int32_t id = 0;
  std::int32_t count = 0;
};

// Sampling parameters of one row. Arrays are on the device, their ids distinct and in [0,
// logits.columns). No padding: rows may be compared bytewise.
struct SampleRow {
  std::int32_t scored = -1;  // token whose log probability is computed; negative: draw one
  std::int32_t num_top = 0;  // [0, min(kSampleTopMax, logits.columns)]
  std::int32_t top_k = 0;    // 0: off
  float temperature = 0.0F;  // 0: argmax, ties to the lowest id
  float top_p = 1.0F;
  float repetition_penalty = 1.0F;
  float presence_penalty = 0.0F;
  float frequency_penalty = 0.0F;
  std::uint64_t seed = 0;        // with the drawn token's position: its random number
  std::int64_t first_count = 0;  // of SampleArgs::counts
  std::int64_t num_counts = 0;   // 0 where there is no penalty
  std::int64_t num_biases = 0;
  std::int64_t is_raw = 0;  // 1: what is reported is of the logits before penalties and biases
  const std::int32_t* bias_ids = nullptr;
  const float* bias_values = nullptr;
};

struct SampleRecord {
  std::int32_t is_valid = 0;  // 0: NaN, +inf or only -inf in the row; all else is 0
  std::int32_t token = 0;
  float logprob = 0.0F;
  std::int32_t num_top = 0;  // of SampleRow::num_top, those whose probability is not 0
};

struct TopToken {
  std::int32_t id = 0;
  float logprob = 0.0F;
};

struct SampleArgs {
  Matrix<float> logits;                     // [m, vocabulary] f32, edited in place
  const SampleRow* rows = nullptr;          // [m]
  const std::int32_t* positions = nullptr;  // [m] of the tokens that the logits belong to
  const TokenCount* counts = nullptr;       // of the sequences so far, indexed by rows
  SampleRecord* records = nullptr;          // [m]
  TopToken* top = nullptr;                  // [m, top_stride], best first, ties by the lowest id
  std::int64_t top_stride = 0;              // >= num_top of every row
  Matrix<float> raw;                        // [m, vocabulary] written, where any row is_raw
};

// REQUIRES: the stream is a device's.
void sample(Stream& stream, const SampleArgs& args);

}  // namespace lmtp::kernels
