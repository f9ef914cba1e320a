// Lengths, ids, prefixes and arrival times of a load: functions of the seed and a number.
#include "lmtp-bench/workload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "lmtp-bench/arrivals.h"

namespace lmtp::tools {
namespace {

using Ids = std::vector<TokenId>;

Request request_of(const WorkloadOptions& options, std::uint64_t index) {
  const auto program = make_program(options, index);
  const auto first = program->next({});
  EXPECT_EQ(first.size(), 1U);
  EXPECT_TRUE(program->next({Answer{}}).empty());
  return first.at(0);
}

WorkloadOptions options() {
  WorkloadOptions options;
  options.vocab_size = 50;
  options.input_len = 40;
  options.output_len = 10;
  return options;
}

TEST(Workload, DependsOnSeedAndNumberAlone) {
  WorkloadOptions work = options();
  const Request first = request_of(work, 0);
  EXPECT_EQ(first.prompt.size(), 40U);
  EXPECT_EQ(first.max_tokens, 10);
  EXPECT_TRUE(first.scored.empty());
  EXPECT_NE(request_of(work, 1).prompt, first.prompt);
  EXPECT_EQ(request_of(work, 0).prompt, first.prompt);
  for (const TokenId id : first.prompt) {
    EXPECT_GE(id, 0);
    EXPECT_LT(id, 50);
  }
  EXPECT_GT(std::set<TokenId>(first.prompt.begin(), first.prompt.end()).size(), 10U);
  work.seed = 2;
  EXPECT_NE(request_of(work, 0).prompt, first.prompt);
}

TEST(Workload, LengthsAreSpreadOverTheirRange) {
  WorkloadOptions work = options();
  work.range_ratio = 0.25;
  std::map<std::size_t, int> seen;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const Request request = request_of(work, i);
    ++seen[request.prompt.size()];
    EXPECT_GE(request.max_tokens, 8);
    EXPECT_LE(request.max_tokens, 12);
  }
  EXPECT_EQ(seen.begin()->first, 30U);
  EXPECT_EQ(seen.rbegin()->first, 50U);
  EXPECT_EQ(seen.size(), 21U);
  for (const auto& [length, count] : seen) EXPECT_GT(count, 40) << length;  // 95 each
}

TEST(Workload, AGroupSharesItsPrefixAndNothingElse) {
  WorkloadOptions work = options();
  work.prefix_len = 12;
  work.num_prefix_groups = 3;
  std::map<Ids, int> prefixes;
  std::set<Ids> rests;
  for (std::uint64_t i = 0; i < 300; ++i) {
    const Ids prompt = request_of(work, i).prompt;
    ASSERT_EQ(prompt.size(), 52U);
    ++prefixes[Ids(prompt.begin(), prompt.begin() + 12)];
    rests.insert(Ids(prompt.begin() + 12, prompt.end()));
  }
  EXPECT_EQ(prefixes.size(), 3U);
  for (const auto& [prefix, count] : prefixes) EXPECT_GT(count, 60);
  EXPECT_EQ(rests.size(), 300U);
}

TEST(Workload, ScoresAndGivenPrompts) {
  WorkloadOptions work = options();
  work.score = true;
  const Request score = request_of(work, 0);
  EXPECT_EQ(score.scored.size(), 10U);
  EXPECT_EQ(score.prompt.size(), 40U);
  EXPECT_FALSE(std::equal(score.scored.begin(), score.scored.end(), score.prompt.begin()));
  work.score = false;
  work.prompt = {7, 8};
  EXPECT_EQ(request_of(work, 0).prompt, (Ids{7, 8}));
  EXPECT_EQ(request_of(work, 1).prompt, (Ids{7, 8}));
}

TEST(Workload, ATracesBlocksAreEqualWhereTheirIdsAre) {
  WorkloadOptions work = options();
  work.trace = std::make_shared<std::vector<TraceRow>>(
      std::vector<TraceRow>{{0, 1200, 33, {4, 5, 6}}, {0, 1500, 1, {4, 5, 9}}, {1, 100, 2, {}}});
  work.trace_length_divisor = 8;  // a block is 64 tokens
  const Request first = request_of(work, 0);
  const Request second = request_of(work, 1);
  EXPECT_EQ(first.prompt.size(), 150U);
  EXPECT_EQ(first.max_tokens, 5);
  EXPECT_EQ(second.prompt.size(), 188U);
  EXPECT_EQ(second.max_tokens, 1);
  const auto differ =
      std::mismatch(first.prompt.begin(), first.prompt.end(), second.prompt.begin()).first;
  EXPECT_GE(differ - first.prompt.begin(), 128);
  EXPECT_LT(differ - first.prompt.begin(), 140);
  // The rows come round again; what is in no block does not repeat.
  EXPECT_EQ(request_of(work, 3).prompt, first.prompt);
  EXPECT_EQ(request_of(work, 5).prompt.size(), request_of(work, 2).prompt.size());
  EXPECT_NE(request_of(work, 5).prompt, request_of(work, 2).prompt);
}

TEST(Workload, TheMaskHasItsSize) {
  for (const int count : {0, 1, 500, 999, 1000}) {
    const Ids ids = mask_ids(3, 1000, count);
    EXPECT_EQ(ids.size(), static_cast<std::size_t>(count));
    EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
    EXPECT_EQ(std::set<TokenId>(ids.begin(), ids.end()).size(), ids.size());
  }
  const Ids half = mask_ids(3, 1000, 500);
  EXPECT_EQ(half, mask_ids(3, 1000, 500));
  EXPECT_NE(half, mask_ids(4, 1000, 500));
  const auto low = std::count_if(half.begin(), half.end(), [](TokenId id) { return id < 500; });
  EXPECT_GT(low, 200);
  EXPECT_LT(low, 300);
}

TEST(Arrivals, APoissonProcessHasItsRateAndItsSpread) {
  constexpr int kCount = 20'000;
  const auto gaps_of = [](double burstiness, std::uint64_t seed) {
    Arrivals arrivals(50.0, burstiness, seed);
    std::vector<double> gaps;
    double last = arrivals.next_s();
    EXPECT_EQ(last, 0.0);
    for (int i = 0; i < kCount; ++i) {
      const double next = arrivals.next_s();
      EXPECT_GE(next, last);
      gaps.push_back(next - last);
      last = next;
    }
    return gaps;
  };
  const auto moments = [](const std::vector<double>& gaps) {
    double sum = 0;
    double squares = 0;
    for (const double gap : gaps) sum += gap, squares += gap * gap;
    const double mean = sum / kCount;
    return std::pair(mean, std::sqrt(squares / kCount - mean * mean));
  };
  const auto poisson = gaps_of(1.0, 7);
  const auto [mean, deviation] = moments(poisson);
  EXPECT_NEAR(mean, 0.02, 0.0006);
  EXPECT_NEAR(deviation, 0.02, 0.001);  // an exponential's deviation is its mean
  const auto later =
      std::count_if(poisson.begin(), poisson.end(), [](double g) { return g > 0.04; });
  EXPECT_NEAR(static_cast<double>(later) / kCount, std::exp(-2.0), 0.01);
  EXPECT_EQ(poisson, gaps_of(1.0, 7));
  EXPECT_NE(poisson, gaps_of(1.0, 8));
  const auto [even_mean, even_deviation] = moments(gaps_of(100.0, 7));
  EXPECT_NEAR(even_mean, 0.02, 0.0006);
  EXPECT_NEAR(even_deviation, 0.002, 0.0002);
}

}  // namespace
}  // namespace lmtp::tools
