// From rows of logits to tokens and their log probabilities: of each row a small record.
//
// In order: penalties, bias and the mask of the row; then what is reported: log sum exp and the
// best tokens, as natural logarithms of probabilities at temperature 1, in f32; then the mask of
// the draw, temperature, what DrawParams keeps of the weights, and the draw, by a random number
// that depends on (seed, position) alone: the token at which the sum of weights, in order of ids,
// passes it. All ties go to the lowest id. Weights are whole numbers (draw_weight.h): given the
// same logits every backend draws the same token. Log probabilities have the same bits within one
// backend.
#pragma once

#include <cstdint>

#include "kernels/matrix.h"
#include "kernels/stream.h"
#include "lmtp/base/draw_params.h"

namespace lmtp::kernels {

// Maximum of SampleRow::num_top.
inline constexpr int kSampleTopMax = 1024;

struct TokenCount {
  std::int32_t id = 0;
  std::int32_t count = 0;
};

// Sampling parameters of one row. Arrays are where the ops run; ids distinct and in [0,
// logits.columns). Without padding, so that rows can be compared bytewise.
struct SampleRow : DrawParams {
  std::int32_t scored = -1;         // token whose log probability is computed; negative: draw one
  std::int32_t num_top = 0;         // [0, min(kSampleTopMax, logits.columns)]
  std::int64_t first_count = 0;     // of SampleArgs::counts
  std::int64_t num_counts = 0;      // 0 without penalties
  std::int64_t counts_input = 0;    // 1: the row's input token (SampleArgs::ids) counts once more
  std::int64_t num_biases = 0;      // added after the penalties
  std::int64_t num_mask_words = 0;  // tokens behind these words are forbidden, too
  std::int64_t is_raw = 0;  // 1: reports log probabilities before penalties, biases and mask
  const std::int32_t* bias_ids = nullptr;
  const float* bias_values = nullptr;
  // Token i is allowed if bit i % 32 of word i / 32 is set; others become -inf. Null: all are.
  const std::uint32_t* mask = nullptr;
};

// The logit of a token that occurs so often, after the penalties; that of repetition as HF's: a
// positive logit is divided, a negative one multiplied.
constexpr float penalized(float logit, const DrawParams& by, std::int32_t count) {
  logit = logit > 0.0F ? logit / by.repetition_penalty : logit * by.repetition_penalty;
  return logit - (by.presence_penalty + by.frequency_penalty * static_cast<float>(count));
}

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
  const std::int32_t* ids = nullptr;        // [m] input tokens, where a row counts its own
  SampleRecord* records = nullptr;          // [m]
  TopToken* top = nullptr;                  // [m, top_stride], best first
  std::int64_t top_stride = 0;              // >= num_top of every row
  Matrix<float> raw = {};  // [m, vocabulary] written, where any row is_raw or has one of the masks
  // Tokens that may be drawn, where the log probabilities that are reported stay those before it:
  // row i's mask is [mask_words] from masks + mask_of[i] * mask_words, as SampleRow::mask;
  // negative: none. Rows that are scored have none.
  const std::uint32_t* masks = nullptr;
  std::int64_t mask_words = 0;            // ceil(vocabulary / 32)
  const std::int32_t* mask_of = nullptr;  // [m]; null: no row has one
};

void sample(Stream& stream, const SampleArgs& args);

}  // namespace lmtp::kernels
