#include "step_pace.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "lmtp/base/ids.h"

namespace lmtp::engine {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr int kTokensMin = 32;
constexpr int kTokensFirst = 64;  // of a model of which it is not known how long it takes
constexpr int kManyDecodes = 16;
constexpr double kWeight = 0.25;  // of the newest step

void add_to(double& average, double seconds) {
  average = average == 0.0 ? seconds : average + kWeight * (seconds - average);
}

}  // namespace

void StepPace::add(int num_tokens, int num_decodes, Duration time, int num_moves, int num_drafts) {
  const double seconds = Seconds(time - std::min<Duration>(time, num_moves * fetch_time_)).count();
  num_decodes_ = num_decodes;
  if (num_tokens - num_drafts == num_decodes) {
    num_measured_ = num_decodes;
    add_to(seconds_of_decodes_, seconds);
  } else if (num_tokens >= kTokensMin) {
    add_to(seconds_per_token_, seconds / num_tokens);
  }
}

int StepPace::tokens_within(Duration time) const {
  constexpr int kAny = std::numeric_limits<int>::max();
  if (seconds_per_token_ == 0.0) return kTokensFirst;
  return static_cast<int>(std::min<double>(Seconds(time).count() / seconds_per_token_, kAny));
}

StepPace::Duration StepPace::time_for(int num_tokens) const {
  return std::chrono::duration_cast<Duration>(Seconds(num_tokens * seconds_per_token_));
}

scheduler::StepLimits StepPace::limits(const scheduler::DebugOptions& options) const {
  scheduler::StepLimits limits;
  if (options.max_prefill_ms > 0) {
    // Beside decodes a step takes three times as long as one of decodes alone, at most; a twelfth
    // of that is left for what is not known before. Beside many, all of which wait, prompts take
    // less, for a fiftieth of the tokens a second (32 streams that start together on a CPU).
    Duration beside = std::chrono::milliseconds(options.max_prefill_ms);
    const int eighths = num_decodes_ < kManyDecodes ? 14 : 11;
    if (decode_time() > Duration::zero()) beside = std::min(beside, decode_time() * eighths / 8);
    limits.prefill = tokens_within(beside);
    limits.cached = tokens_within(decode_time());
  }
  if (options.max_alone_ms > 0) {
    limits.alone = tokens_within(std::chrono::milliseconds(options.max_alone_ms));
  }
  if (fetch_time_.count() > 0) {
    if (seconds_per_token_ > 0.0 && num_groups_ * Duration(fetch_time_) > time_for(kBlockSize)) {
      limits.fetched = 0;
    } else if (options.max_prefill_ms > 0) {
      const auto most = std::chrono::milliseconds(options.max_prefill_ms) / fetch_time_;
      limits.fetched =
          static_cast<int>(std::clamp<std::int64_t>(most, 1, scheduler::StepLimits::kAny));
    }
  }
  return limits;
}

StepPace::Duration StepPace::decode_time() const {
  const auto measured = std::chrono::duration_cast<Duration>(Seconds(seconds_of_decodes_));
  const bool has_more = num_measured_ > 0 && num_decodes_ > num_measured_;
  return has_more ? std::max(measured, time_for(num_decodes_)) : measured;
}

}  // namespace lmtp::engine
