// How large one step of a model may be. Scheduler, agent and memory plan get the same limits.
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
