// How large one step of a model may be, and how many requests it takes. Scheduler, agent and memory
// plan get the same limits.
#pragma once

#include <algorithm>

namespace lmtp {

// Of one model, waiting and running; the limit where no option says otherwise.
inline constexpr int kDefaultConcurrentRequests = 1024;

struct BatchLimits {
  static constexpr int kSequencesMax = 256;

  int max_tokens = 512;               // >= 1
  int max_sequences = kSequencesMax;  // [1, kSequencesMax]

  // Sequences that fit in one step.
  int rows_max() const { return std::min(max_tokens, max_sequences); }
};

}  // namespace lmtp
