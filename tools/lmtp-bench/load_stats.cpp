#include "load_stats.h"

#include <algorithm>
#include <cmath>

#include "lmtp/base/check.h"

namespace lmtp::tools {
namespace {

constexpr double kLowestS = 1e-6;
constexpr double kStep = 1.01;  // 1.01^2083 is 1e9

}  // namespace

void TimeHistogram::add(double seconds, std::int64_t times) {
  const double position = std::log(std::max(seconds, kLowestS) / kLowestS) / std::log(kStep);
  const auto bucket = static_cast<std::size_t>(position);
  buckets_[std::min(bucket, kNumBuckets - 1)] += times;
  count_ += times;
  sum_s_ += seconds * static_cast<double>(times);
  max_s_ = std::max(max_s_, seconds);
}

void TimeHistogram::add(const TimeHistogram& other) {
  for (std::size_t i = 0; i < kNumBuckets; ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  sum_s_ += other.sum_s_;
  max_s_ = std::max(max_s_, other.max_s_);
}

double TimeHistogram::mean_s() const {
  return count_ == 0 ? 0.0 : sum_s_ / static_cast<double>(count_);
}

double TimeHistogram::quantile_s(double fraction) const {
  LMTP_CHECK(fraction > 0 && fraction <= 1, fraction);
  if (count_ == 0) return 0.0;
  const auto rank = static_cast<std::int64_t>(std::ceil(fraction * static_cast<double>(count_)));
  std::int64_t seen = 0;
  for (std::size_t i = 0; i < kNumBuckets; ++i) {
    seen += buckets_[i];
    if (seen < rank) continue;
    // The middle of the bucket, but not above the largest sample.
    return std::min(kLowestS * std::pow(kStep, static_cast<double>(i) + 0.5), max_s_);
  }
  return max_s_;
}

void LoadStats::note_error(const std::string& text, std::int64_t times) {
  const bool apart = errors.size() < kErrorTextsMax || errors.contains(text);
  errors[apart ? text : kOtherErrors] += times;
}

void LoadStats::add(const LoadStats& other) {
  num_programs += other.num_programs;
  num_programs_done += other.num_programs_done;
  num_completed += other.num_completed;
  num_stopped += other.num_stopped;
  num_failed += other.num_failed;
  num_unfinished += other.num_unfinished;
  num_stray += other.num_stray;
  num_tokens += other.num_tokens;
  num_prompt_tokens += other.num_prompt_tokens;
  for (const auto& [text, count] : other.errors) note_error(text, count);
  ttft.add(other.ttft);
  tpot.add(other.tpot);
  itl.add(other.itl);
  e2el.add(other.e2el);
  program.add(other.program);
  lag.add(other.lag);
  const std::size_t num_free = kRecordsMax - records.size();
  const std::size_t count = std::min(num_free, other.records.size());
  records.insert(records.end(), other.records.begin(),
                 other.records.begin() + static_cast<std::ptrdiff_t>(count));
}

}  // namespace lmtp::tools
