// What a load generator measures: counts, and times in a histogram of fixed size.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace lmtp::tools {

// Times from 1 us to about 1000 s in buckets 1 % apart, so that millions of samples take 16 KiB.
// Values beyond the ends count in the first and last bucket. Plain data; copied and added up
// freely.
class TimeHistogram {
 public:
  void add(double seconds);
  void add(const TimeHistogram& other);

  std::int64_t count() const { return count_; }
  double max_s() const { return max_s_; }
  // The time that the part `fraction` of the samples do not exceed, within 1 %; 0 without samples.
  // REQUIRES: 0 < fraction <= 1.
  double quantile_s(double fraction) const;

 private:
  static constexpr std::size_t kNumBuckets = 2100;

  std::array<std::int64_t, kNumBuckets> buckets_{};
  std::int64_t count_ = 0;
  double max_s_ = 0.0;
};

// The outcome of one phase, or of one connection's part of it.
struct LoadStats {
  std::int64_t num_finished = 0;       // requests that ended by a finish_reason
  std::int64_t num_stopped = 0;        // of them, those that ended by EOS before their length
  std::int64_t num_unfinished = 0;     // under way when the time was over
  std::int64_t num_errors = 0;         // requests that ended by an error, connections that broke
  std::int64_t num_tokens = 0;         // received
  std::int64_t num_prompt_tokens = 0;  // of the requests that gave a first token
  double wall_s = 0.0;
  TimeHistogram first_token;  // from the request to its first token
  TimeHistogram next_token;   // between two tokens of a stream
  std::string first_error;

  void add(const LoadStats& other);  // all but wall_s
};

}  // namespace lmtp::tools
