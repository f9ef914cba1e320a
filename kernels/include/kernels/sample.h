// Sampling on a device: only a small record per row of logits is copied to the host. The steps and
// their order are those of lmtp/sampling/sampler.h, the implementation on the host. Weights are
// summed as integers in units of 2^-40, where the host adds doubles: the sums do not depend on the
// order of addition, and the drawn token differs from the host's only if the random number lies on
// the boundary between two tokens, to within the rounding of the sums.
#pragma once

#include <cstdint>

#include "kernels/matrix.h"
#include "kernels/stream.h"

namespace lmtp::kernels {

// Maximum of SampleRow::num_top.
inline constexpr int kSampleTopMax = 1024;

struct TokenCount {
  std::int32_t id = 0;
  std::int32_t count = 0;
};

// Sampling parameters of one row. Arrays are on the device, their ids distinct and in [0,
// logits.columns). Without padding, so that rows can be compared bytewise.
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
  std::int64_t num_counts = 0;   // 0 without penalties
  std::int64_t num_biases = 0;
  std::int64_t is_raw = 0;  // 1: reports log probabilities before penalties and biases
  const std::int32_t* bias_ids = nullptr;
  const float* bias_values = nullptr;
};

struct SampleRecord {
  std::int32_t is_valid = 0;  // 0: NaN, +inf or only -inf in the row; other fields are 0
  std::int32_t token = 0;
  float logprob = 0.0F;
  std::int32_t num_top = 0;  // entries written: at most SampleRow::num_top, none of probability 0
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
