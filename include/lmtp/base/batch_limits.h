// How large one step of a model may be, and how many requests it takes. Scheduler, agent and memory
// plan get the same limits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace lmtp {

// Of one model, waiting and running; the limit where no option says otherwise.
inline constexpr int kDefaultConcurrentRequests = 1024;
// Of one model, for log probabilities (cache::ScoreCache).
inline constexpr std::int64_t kDefaultScoreCacheBytes = std::int64_t{64} << 20;

// While others run, waiting sequences of more than a block of tokens to compute are let in
// together: once so many wait for each running one (rounded down), or so many steps after the last
// of them.
struct AdmissionPacing {
  double waiting_served_ratio = 0.3;  // >= 0
  int max_waiting_steps = 20;         // >= 0
};

struct BatchLimits {
  static constexpr int kSequencesMax = 256;

  int max_tokens = 512;               // >= 1
  int max_sequences = kSequencesMax;  // [1, kSequencesMax]
  int max_prefill_tokens = 0;         // >= 0: of max_tokens, beside decodes; 0: no limit of its own
  // Of all running sequences together, what they may come to have: each one's prompt and
  // max_tokens. None is preempted then. 0: as many run as probably fit.
  int max_total_tokens = 0;
  int max_adapters = 16;  // >= 1: different ones whose sequences run
  // nullopt: each is let in as soon as it fits.
  std::optional<AdmissionPacing> pacing = std::nullopt;

  // Sequences that fit in one step.
  int rows_max() const { return std::min(max_tokens, max_sequences); }
};

}  // namespace lmtp
