// How large one step of a model may be: those who plan it, those who compute it and those who make
// room for it are given the same limits.
#pragma once

#include <algorithm>

namespace lmtp {

struct BatchLimits {
  static constexpr int kSequencesMax = 256;

  int max_tokens = 512;               // >= 1
  int max_sequences = kSequencesMax;  // [1, kSequencesMax]

  // Sequences that fit in one step.
  int rows_max() const { return std::min(max_tokens, max_sequences); }
};

}  // namespace lmtp
