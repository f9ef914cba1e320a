// From rows of logits to tokens on a device: one small record a row goes back to the host. What is
// done and in which order is lmtp/sampling/sampler.h's, its twin on the host; sums of weights are
// whole numbers of 2^-40 here, so that any order of adding gives the same.
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

// What is wanted of one row. Arrays lie on the device, and their ids are distinct and in
// [0, logits.columns). It has no padding: two may be compared by their bytes.
struct SampleRow {
  std::int32_t scored = -1;  // a token whose log probability is wanted; negative: one is drawn
  std::int32_t num_top = 0;  // [0, min(kSampleTopMax, logits.columns)]
  std::int32_t top_k = 0;    // 0: off
  float temperature = 0.0F;  // 0: the greatest, ties to the lowest id
  float top_p = 1.0F;
  float repetition_penalty = 1.0F;
  float presence_penalty = 0.0F;
  float frequency_penalty = 0.0F;
  std::uint64_t seed = 0;        // with the position of what is drawn: the number it is drawn by
  std::int64_t first_count = 0;  // of SampleArgs::counts
  std::int64_t num_counts = 0;   // 0 where there is no penalty
  std::int64_t num_biases = 0;
  const std::int32_t* bias_ids = nullptr;
  const float* bias_values = nullptr;
};

struct SampleRecord {
  std::int32_t is_valid = 0;  // 0: the row holds no numbers to choose by; all else is 0
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
  const std::int32_t* positions = nullptr;  // [m] of the tokens that the rows of logits are of
  const TokenCount* counts = nullptr;       // of the sequences so far, as rows have them
  SampleRecord* records = nullptr;          // [m]
  TopToken* top = nullptr;                  // [m, top_stride], best first, ties by the lowest id
  std::int64_t top_stride = 0;              // >= num_top of every row
};

// REQUIRES: the stream is a device's.
void sample(Stream& stream, const SampleArgs& args);

}  // namespace lmtp::kernels
