#include "load_stats.h"

#include <algorithm>
#include <cmath>

#include "lmtp/base/check.h"

namespace lmtp::tools {
namespace {

constexpr double kLowestS = 1e-6;
constexpr double kStep = 1.01;  // 1.01^2083 is 1e9

}  // namespace

void TimeHistogram::add(double seconds) {
  const double position = std::log(std::max(seconds, kLowestS) / kLowestS) / std::log(kStep);
  const auto bucket = static_cast<std::size_t>(position);
  ++buckets_[std::min(bucket, kNumBuckets - 1)];
  ++count_;
  max_s_ = std::max(max_s_, seconds);
}

void TimeHistogram::add(const TimeHistogram& other) {
  for (std::size_t i = 0; i < kNumBuckets; ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  max_s_ = std::max(max_s_, other.max_s_);
}

double TimeHistogram::quantile_s(double fraction) const {
  LMTP_CHECK(fraction > 0 && fraction <= 1, fraction);
  if (count_ == 0) return 0.0;
  const auto rank = static_cast<std::int64_t>(std::ceil(fraction * static_cast<double>(count_)));
  std::int64_t seen = 0;
  for (std::size_t i = 0; i < kNumBuckets; ++i) {
    seen += buckets_[i];
    if (seen < rank) continue;
    // The middle of the bucket; no quantile lies above the largest sample.
    return std::min(kLowestS * std::pow(kStep, static_cast<double>(i) + 0.5), max_s_);
  }
  return max_s_;
}

void LoadStats::add(const LoadStats& other) {
  num_finished += other.num_finished;
  num_stopped += other.num_stopped;
  num_unfinished += other.num_unfinished;
  num_errors += other.num_errors;
  num_tokens += other.num_tokens;
  num_prompt_tokens += other.num_prompt_tokens;
  first_token.add(other.first_token);
  next_token.add(other.next_token);
  if (first_error.empty()) first_error = other.first_error;
}

}  // namespace lmtp::tools
