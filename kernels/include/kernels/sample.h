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
// As SampleRow::scored: the row is passed over, and nothing is written.
inline constexpr std::int32_t kSampleNothing = -2;

struct alignas(8) TokenCount {
  std::int32_t id = 0;
  std::int32_t count = 0;
};

// Sampling parameters of one row. Arrays are where the ops run; ids distinct and in [0,
// logits.columns). Without padding: rows are sent word by word.
struct SampleRow : DrawParams {
  // Token whose log probability is computed; negative: draw one, but for kSampleNothing.
  std::int32_t scored = -1;
  std::int32_t num_top = 0;         // [0, min(kSampleTopMax, logits.columns)]
  std::int64_t first_count = 0;     // of SampleArgs::counts
  std::int64_t num_counts = 0;      // 0 without penalties
  std::int64_t counts_input = 0;    // 1: the row's input token (SampleArgs::ids) counts once more
  std::int64_t num_biases = 0;      // added after the penalties
  std::int64_t num_mask_words = 0;  // tokens behind these words are forbidden, too
  std::int64_t is_raw = 0;  // 1: reports log probabilities before penalties, biases and mask
  const std::int32_t* bias_ids = nullptr;
  const float* bias_values = nullptr;
  // Tokens whose log probabilities are written as well, whatever they are: after the num_top places
  // of SampleArgs::top, in this order.
  const std::int32_t* listed_ids = nullptr;  // [num_listed]
  std::int64_t num_listed = 0;
  // 1: after those, one more place is written: as its id the rank of the row's token, as many as
  // have a logit that is not less than its own; as its logprob the entropy, in nats, of the
  // probabilities that are reported, by one order of summation.
  std::int64_t is_measured = 0;
  // Token i is allowed if bit i % 32 of word i / 32 is set; others become -inf. Null: all are.
  const std::uint32_t* mask = nullptr;
};

// The logit of a token that occurs, after the penalties; that of repetition as HF's: a positive
// logit is divided, a negative one multiplied. The others are for the occurrences that count; 0:
// none does.
constexpr float penalized(float logit, const DrawParams& by, std::int32_t count) {
  logit = logit > 0.0F ? logit / by.repetition_penalty : logit * by.repetition_penalty;
  const float of_count = by.presence_penalty + by.frequency_penalty * static_cast<float>(count);
  return logit - (count == 0 ? 0.0F : of_count);
}

// Of a token whose logit is `exponent` * temperature above the greatest, so its weight e^exponent:
// -log of its probability in units of 2^-16, less a constant of the row. What weighs nothing is at
// the end.
inline constexpr std::int32_t kSurprisalMax = 28 << 16;
constexpr std::int32_t surprisal(float exponent) {
  return static_cast<std::int32_t>((exponent > -28.0F ? exponent : -28.0F) * -0x1.0p16F);
}

// The mean surprisal of the tokens that a draw keeps, each by its weight: the entropy of that draw,
// less the same constant. Weights are cut to 28 bits, so that sums over two million tokens fit: no
// product exceeds that of the exponent -1, less than 2^43.
struct SurprisalSums {
  std::uint64_t weights = 0;
  std::uint64_t products = 0;

  constexpr void add(std::uint64_t weight, std::int32_t one) {
    weights += weight >> 12;
    products += (weight >> 12) * static_cast<std::uint64_t>(one);
  }
  // REQUIRES: the best token was added.
  constexpr std::int32_t mean() const { return static_cast<std::int32_t>(products / weights); }
};

// As both are written to the host's memory: by one store each.
struct alignas(16) SampleRecord {
  std::int32_t is_valid = 0;  // 0: NaN, +inf or only -inf in the row; other fields are 0
  std::int32_t token = 0;
  float logprob = 0.0F;
  std::int32_t num_top = 0;  // entries written: at most SampleRow::num_top, none of probability 0
};

struct alignas(8) TopToken {
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
  SampleRecord* sent = nullptr;             // [m] the same once more, for the host; null: not
  TopToken* top = nullptr;      // [m, top_stride], best first; then those listed; what is measured
  std::int64_t top_stride = 0;  // >= num_top + num_listed + is_measured of every row
  // [m, vocabulary] written, where any row is_raw, has one of the masks, or draws by typical_p.
  Matrix<float> raw = {};
  // Tokens that may be drawn, where the log probabilities that are reported stay those before it:
  // row i's mask is [mask_words] from masks + mask_of[i] * mask_words, as SampleRow::mask;
  // negative: none. Rows that are scored have none.
  const std::uint32_t* masks = nullptr;
  std::int64_t mask_words = 0;            // ceil(vocabulary / 32)
  const std::int32_t* mask_of = nullptr;  // [m]; null: no row has one
};

void sample(Stream& stream, const SampleArgs& args);

}  // namespace lmtp::kernels
