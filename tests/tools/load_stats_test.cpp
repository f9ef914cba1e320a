#include "lmtp-bench/load_stats.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>

namespace lmtp::tools {
namespace {

TEST(TimeHistogram, QuantilesAreWithinOnePercent) {
  TimeHistogram histogram;
  EXPECT_EQ(histogram.quantile_s(0.5), 0.0);
  EXPECT_EQ(histogram.mean_s(), 0.0);
  for (int i = 1; i <= 1000; ++i) histogram.add(i * 1e-3);
  EXPECT_EQ(histogram.count(), 1000);
  EXPECT_NEAR(histogram.quantile_s(0.5), 0.5, 0.005);
  EXPECT_NEAR(histogram.quantile_s(0.9), 0.9, 0.009);
  EXPECT_NEAR(histogram.quantile_s(0.99), 0.99, 0.0099);
  EXPECT_LE(histogram.quantile_s(1.0), 1.0);
  EXPECT_EQ(histogram.max_s(), 1.0);
  EXPECT_NEAR(histogram.mean_s(), 0.5005, 1e-9);
}

TEST(TimeHistogram, CountsASampleSeveralTimes) {
  TimeHistogram histogram;
  histogram.add(1.0);
  histogram.add(0.5, 3);
  EXPECT_EQ(histogram.count(), 4);
  EXPECT_EQ(histogram.mean_s(), 0.625);
  EXPECT_NEAR(histogram.quantile_s(0.75), 0.5, 0.005);
  EXPECT_EQ(histogram.quantile_s(1.0), 1.0);
}

TEST(TimeHistogram, TakesWhatIsBeyondItsEnds) {
  TimeHistogram histogram;
  histogram.add(0.0);
  histogram.add(1e9);
  EXPECT_EQ(histogram.count(), 2);
  EXPECT_LT(histogram.quantile_s(0.5), 2e-6);
  EXPECT_GT(histogram.quantile_s(1.0), 900.0);
}

TEST(LoadStats, AddsUp) {
  LoadStats sum;
  LoadStats part;
  part.num_programs = 3;
  part.num_completed = 2;
  part.num_failed = 1;
  part.num_tokens = 5;
  part.note_error("no");
  part.ttft.add(0.25);
  part.records.push_back({1.0, 0.25, 0.5, 7, 5, false, "length"});
  sum.add(part);
  part.note_error("never");
  part.ttft.add(1.0);
  sum.add(part);
  EXPECT_EQ(sum.num_programs, 6);
  EXPECT_EQ(sum.num_completed, 4);
  EXPECT_EQ(sum.num_failed, 2);
  EXPECT_EQ(sum.num_tokens, 10);
  EXPECT_EQ(sum.errors, (std::map<std::string, std::int64_t>{{"never", 1}, {"no", 2}}));
  EXPECT_EQ(sum.ttft.count(), 3);
  EXPECT_NEAR(sum.ttft.quantile_s(0.6), 0.25, 0.0025);
  ASSERT_EQ(sum.records.size(), 2U);
  EXPECT_EQ(sum.records[1].num_prompt_tokens, 7);
}

TEST(LoadStats, KeepsSoManyErrorTextsApartAndLosesNone) {
  LoadStats stats;
  for (int i = 0; i < 1000; ++i) stats.note_error("error " + std::to_string(i));
  stats.note_error("error 0");
  EXPECT_EQ(stats.errors.size(), kErrorTextsMax + 1);
  std::int64_t num_errors = 0;
  for (const auto& [text, count] : stats.errors) num_errors += count;
  EXPECT_EQ(num_errors, 1001);
  EXPECT_EQ(stats.errors.at("error 0"), 2);
  EXPECT_EQ(stats.errors.at(kOtherErrors), 1000 - static_cast<std::int64_t>(kErrorTextsMax));
}

}  // namespace
}  // namespace lmtp::tools
