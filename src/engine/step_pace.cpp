#include "step_pace.h"

#include <algorithm>
#include <limits>

namespace lmtp::engine {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr int kTokensMin = 32;
constexpr double kWeight = 0.25;  // of the newest step

}  // namespace

void StepPace::add(int num_tokens, Duration time) {
  if (num_tokens < kTokensMin) return;
  const double seconds = Seconds(time).count() / num_tokens;
  seconds_per_token_ = seconds_per_token_ == 0.0
                           ? seconds
                           : seconds_per_token_ + kWeight * (seconds - seconds_per_token_);
}

int StepPace::tokens_within(Duration time) const {
  constexpr int kAny = std::numeric_limits<int>::max();
  if (seconds_per_token_ == 0.0) return kAny;
  return static_cast<int>(std::min<double>(Seconds(time).count() / seconds_per_token_, kAny));
}

StepPace::Duration StepPace::time_for(int num_tokens) const {
  return std::chrono::duration_cast<Duration>(Seconds(num_tokens * seconds_per_token_));
}

}  // namespace lmtp::engine
