// The numbers by which a token is chosen from logits, as a request gives them and as the op sample
// takes them (kernels/sample.h): a row of that op has a copy of its request's.
#pragma once

#include <cstdint>

namespace lmtp {

// In order: penalties, and what else edits logits; temperature; min_p, which keeps what is not
// below the least logit that has min_p of the best one's weight; top_k; top_p, the nucleus of
// Holtzman et al. 2020: the shortest list of greatest weights that holds top_p of the sum of those
// that are left; typical_p, of Meister et al. 2023: of what is left then, the shortest list of
// tokens whose surprisals are nearest to their mean that holds typical_p of the sum; the draw.
// Without padding: rows are sent word by word.
struct DrawParams {
  std::uint64_t seed = 0;           // draws are f(seed, absolute position)
  float temperature = 0.0F;         // >= 0; 0 is greedy, ties go to the lowest id
  float min_p = 0.0F;               // [0, 1]; of the best token's probability; 0 is off
  float top_p = 1.0F;               // (0, 1]
  float typical_p = 1.0F;           // (0, 1]
  std::int32_t top_k = 0;           // >= 0; 0 is off
  float repetition_penalty = 1.0F;  // > 0; over prompt and generated tokens
  float presence_penalty = 0.0F;    // [-100, 100]
  float frequency_penalty = 0.0F;   // [-100, 100]

  bool has_penalties() const {
    return repetition_penalty != 1.0F || presence_penalty != 0.0F || frequency_penalty != 0.0F;
  }
};

}  // namespace lmtp
