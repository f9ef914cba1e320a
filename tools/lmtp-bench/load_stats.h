// The results of a load: counts, errors by text, and times in histograms of fixed size.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lmtp::tools {

inline constexpr std::size_t kErrorTextsMax = 32;      // counted separately; others together
inline constexpr std::size_t kRecordsMax = 1'000'000;  // requests kept one by one
inline constexpr const char* kOtherErrors = "(others)";

// Times from 1 us to about 1000 s in buckets 1 % apart, so that millions of samples take 16 KiB.
// Values out of range count in the first or last bucket. Plain data that can be copied and summed.
class TimeHistogram {
 public:
  void add(double seconds) { add(seconds, 1); }
  void add(double seconds, std::int64_t times);
  void add(const TimeHistogram& other);

  std::int64_t count() const { return count_; }
  double max_s() const { return max_s_; }
  double mean_s() const;  // exact; 0 without samples
  // The `fraction` quantile, within 1 %; 0 without samples.
  // REQUIRES: 0 < fraction <= 1.
  double quantile_s(double fraction) const;

 private:
  static constexpr std::size_t kNumBuckets = 2100;

  std::array<std::int64_t, kNumBuckets> buckets_{};
  std::int64_t count_ = 0;
  double sum_s_ = 0.0;
  double max_s_ = 0.0;
};

// One request that ended or was cut off.
struct RequestRecord {
  double start_s = 0.0;  // since the load began
  double ttft_s = 0.0;   // 0: it had no token
  double e2el_s = 0.0;   // until its end, by a token or an error
  int num_prompt_tokens = 0;
  int num_tokens = 0;  // received
  bool score = false;
  std::string outcome;  // "stop", "length", "unfinished", or the error
};

// The outcome of a load, or of one connection's part of it.
struct LoadStats {
  std::int64_t num_programs = 0;       // started
  std::int64_t num_programs_done = 0;  // of them, those that ran to their end without an error
  std::int64_t num_completed = 0;      // requests that ended by a finish_reason
  std::int64_t num_stopped = 0;        // of them, GENERATEs that ended by EOS before their length
  std::int64_t num_failed = 0;         // requests that ended by an error
  std::int64_t num_unfinished = 0;     // requests in flight at the end of the time
  std::int64_t num_stray = 0;          // entries of streams that were not in flight
  std::int64_t num_tokens = 0;         // received
  std::int64_t num_prompt_tokens = 0;  // of the requests that gave a first token
  std::map<std::string, std::int64_t> errors;  // by text; at most kErrorTextsMax + 1

  TimeHistogram ttft;  // a request until its first token
  // Of GENERATEs alone: the tokens of a SCORE come all at once.
  TimeHistogram tpot;     // (e2el - ttft) / (tokens - 1), of requests with two tokens and more
  TimeHistogram itl;      // between tokens of a request; tokens of one message share the gap
  TimeHistogram e2el;     // a request until its last token
  TimeHistogram program;  // a program until its last request's end
  TimeHistogram lag;      // open loop: how much later than due a program was started
  std::vector<RequestRecord> records;  // if requested; at most kRecordsMax

  // Of the whole load, not summed over connections.
  double duration_s = 0.0;
  std::int64_t num_not_sent = 0;   // programs that were to be started and were not
  std::int64_t peak_programs = 0;  // the most in flight at a time
  std::int64_t peak_requests = 0;
  bool interrupted = false;

  void note_error(const std::string& text, std::int64_t times = 1);
  void add(const LoadStats& other);
};

}  // namespace lmtp::tools
