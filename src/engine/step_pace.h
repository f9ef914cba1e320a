// StepPace: how long tokens take in steps that compute many, from the steps before.
#pragma once

#include <chrono>

namespace lmtp::engine {

// A moving average. Owner: the Engine; its thread.
class StepPace {
 public:
  using Duration = std::chrono::steady_clock::duration;

  // A step of so many tokens took so long. Steps of few tokens are passed over: their time is not
  // that of tokens, but of reading the weights.
  void add(int num_tokens, Duration time);

  // Nothing is known before the first step: as many as you like, no time.
  int tokens_within(Duration time) const;
  Duration time_for(int num_tokens) const;

 private:
  double seconds_per_token_ = 0.0;  // 0: not known
};

}  // namespace lmtp::engine
