#include "load_stats.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "load_generator.h"

namespace lmtp::tools {
namespace {

TEST(TimeHistogram, QuantilesAreWithinOnePercent) {
  TimeHistogram histogram;
  EXPECT_EQ(histogram.quantile_s(0.5), 0.0);
  for (int i = 1; i <= 1000; ++i) histogram.add(i * 1e-3);
  EXPECT_EQ(histogram.count(), 1000);
  EXPECT_NEAR(histogram.quantile_s(0.5), 0.5, 0.005);
  EXPECT_NEAR(histogram.quantile_s(0.9), 0.9, 0.009);
  EXPECT_NEAR(histogram.quantile_s(0.99), 0.99, 0.0099);
  EXPECT_LE(histogram.quantile_s(1.0), 1.0);
  EXPECT_EQ(histogram.max_s(), 1.0);
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
  part.num_finished = 2;
  part.num_tokens = 5;
  part.num_errors = 1;
  part.first_error = "first";
  part.first_token.add(0.25);
  sum.add(part);
  part.first_error = "second";
  part.first_token.add(1.0);
  sum.add(part);
  EXPECT_EQ(sum.num_finished, 4);
  EXPECT_EQ(sum.num_tokens, 10);
  EXPECT_EQ(sum.num_errors, 2);
  EXPECT_EQ(sum.first_error, "first");
  EXPECT_EQ(sum.first_token.count(), 3);
  EXPECT_EQ(sum.first_token.max_s(), 1.0);
  EXPECT_NEAR(sum.first_token.quantile_s(0.6), 0.25, 0.0025);
}

TEST(RandomIds, DependOnSeedAndNumberAlone) {
  LoadOptions options;
  options.vocab_size = 50;
  options.shared_prefix = 10;
  const auto first = random_ids(options, 0, 40);
  EXPECT_EQ(random_ids(options, 0, 40), first);
  const auto second = random_ids(options, 1, 40);
  EXPECT_TRUE(std::equal(first.begin(), first.begin() + 10, second.begin()));
  EXPECT_FALSE(std::equal(first.begin() + 10, first.end(), second.begin() + 10));
  for (const TokenId id : first) {
    EXPECT_GE(id, 0);
    EXPECT_LT(id, 50);
  }
  options.seed = 2;
  EXPECT_NE(random_ids(options, 0, 40), first);
}

}  // namespace
}  // namespace lmtp::tools
