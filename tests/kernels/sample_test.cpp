// The op sample on every instruction set of this processor, and its plain twin.
#include "kernels/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "kernels/draw_weight.h"
#include "sample_support.h"

namespace lmtp {
namespace {

using testing::SampleCase;
using testing::SampleOutcome;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<const kernels::Backend*> all_backends() {
  auto all = kernels::cpu_backends();
  all.push_back(&kernels::reference_backend());
  return all;
}

class SampleTest : public testing::BackendTest {
 protected:
  static SampleOutcome sample(const SampleCase& one) { return testing::sample(*GetParam(), one); }
};

INSTANTIATE_TEST_SUITE_P(Backends, SampleTest, ::testing::ValuesIn(all_backends()),
                         testing::backend_name);

// In double, sorted and summed as the definition says: what is reported before a draw.
std::vector<double> reference_logprobs(const SampleCase& one) {
  std::vector<double> logits(one.logits.begin(), one.logits.end());
  std::map<std::int32_t, int> counts;
  for (std::size_t i = 0; i < one.tokens.size(); ++i) {
    counts[one.tokens[i]] += i < one.num_uncounted ? 0 : 1;
  }
  for (const auto& [id, count] : counts) {
    double& logit = logits.at(static_cast<std::size_t>(id));
    const auto penalty = static_cast<double>(one.params.repetition_penalty);
    logit = logit > 0.0 ? logit / penalty : logit * penalty;
    if (count > 0) logit -= static_cast<double>(one.params.presence_penalty);
    logit -= static_cast<double>(one.params.frequency_penalty) * count;
  }
  for (const auto& [id, value] : one.biases) {
    logits.at(static_cast<std::size_t>(id)) += static_cast<double>(value);
  }
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const double logit : logits) sum += std::exp(logit - max);
  for (double& logit : logits) logit = (logit - max) - std::log(sum);
  return logits;
}

TEST_P(SampleTest, GreedyAndReportedLogprobsAreTheReferences) {
  std::mt19937 generator(3);
  for (const std::size_t size : {1, 2, 15, 16, 17, 97, 1000, 50257}) {
    SampleCase one{.logits = testing::random_floats(size, static_cast<unsigned>(size), 4.0F)};
    one.params.repetition_penalty = 1.7F;
    one.params.presence_penalty = 0.3F;
    one.params.frequency_penalty = -0.2F;
    one.params.num_top = static_cast<std::int32_t>(std::min<std::size_t>(5, size));
    one.num_uncounted = 25;
    for (int i = 0; i < 40; ++i) {
      one.tokens.push_back(static_cast<std::int32_t>(generator() % size));
    }
    for (std::size_t id = 0; id < size; id += 2) {
      one.biases[static_cast<std::int32_t>(id)] = id % 3 == 0 ? -100.0F : 0.5F;
    }
    one.listed = {static_cast<std::int32_t>(size) - 1, 0, static_cast<std::int32_t>(size / 2)};
    const auto expected = reference_logprobs(one);
    std::vector<std::int32_t> order(size);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return expected[static_cast<std::size_t>(a)] > expected[static_cast<std::size_t>(b)];
    });
    const SampleOutcome outcome = sample(one);
    EXPECT_EQ(outcome.record.token, order[0]);
    EXPECT_NEAR(outcome.record.logprob, expected[static_cast<std::size_t>(order[0])], 2e-5);
    ASSERT_EQ(outcome.top.size(), std::min<std::size_t>(5, size));
    for (std::size_t i = 0; i < outcome.top.size(); ++i) {
      EXPECT_EQ(outcome.top[i].first, order[i]);
      EXPECT_NEAR(outcome.top[i].second, expected[static_cast<std::size_t>(order[i])], 2e-5);
    }
    ASSERT_EQ(outcome.listed.size(), 3U);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(outcome.listed[i].first, one.listed[i]);
      EXPECT_NEAR(outcome.listed[i].second, expected[static_cast<std::size_t>(one.listed[i])],
                  2e-5);
    }
  }
}

// In float64, of what is reported; tokens of probability 0 add nothing, and are of the last rank.
TEST_P(SampleTest, EntropyAndRankAreTheReferences) {
  for (const float spread : {1e-6F, 0.1F, 4.0F, 40.0F, 4000.0F}) {
    for (const std::size_t size : {1, 2, 15, 17, 1000, 50257}) {
      SCOPED_TRACE(std::to_string(spread) + ", " + std::to_string(size));
      SampleCase one{.logits = testing::random_floats(size, static_cast<unsigned>(size), spread)};
      for (std::size_t id = 1; id < size; id += 3) one.logits[id] = -kInfinity;
      one.params.is_measured = 1;
      double entropy = 0.0;
      for (const double logprob : reference_logprobs(one)) {
        if (std::isfinite(logprob)) entropy -= std::exp(logprob) * logprob;
      }
      for (const std::size_t id : {std::size_t{0}, size / 2, size - 1}) {
        one.params.scored = static_cast<std::int32_t>(id);
        const auto measured = sample(one).measured;
        EXPECT_NEAR(measured.logprob, entropy, 1e-5 * std::max(1.0, entropy));
        const auto is_better = [&](float logit) { return logit >= one.logits[id]; };
        EXPECT_EQ(measured.id, std::ranges::count_if(one.logits, is_better));
      }
    }
  }
}

TEST_P(SampleTest, TiesGoToTheLowestId) {
  SampleCase one{.logits = std::vector<float>(300, -1.0F)};
  for (const std::size_t id : {250, 41, 40, 299, 7}) one.logits[id] = 2.0F;
  one.params.num_top = 4;
  const SampleOutcome outcome = sample(one);
  EXPECT_EQ(outcome.record.token, 7);
  ASSERT_EQ(outcome.top.size(), 4U);
  EXPECT_EQ(outcome.top[1].first, 40);
  EXPECT_EQ(outcome.top[2].first, 41);
  EXPECT_EQ(outcome.top[3].first, 250);
  one.params.top_k = 2;
  one.params.temperature = 1.0F;
  std::set<std::int32_t> drawn;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    one.params.seed = seed;
    drawn.insert(sample(one).record.token);
  }
  EXPECT_EQ(drawn, (std::set<std::int32_t>{7, 40}));
}

TEST_P(SampleTest, TheBestUpToTheLimitAreExact) {
  for (const int num_top : {0, 1, 2, 100, kernels::kSampleTopMax}) {
    SampleCase one{.logits = testing::random_floats(20000, 8)};
    one.params.num_top = num_top;
    const SampleOutcome outcome = sample(one);
    ASSERT_EQ(outcome.top.size(), static_cast<std::size_t>(num_top));
    auto sorted = one.logits;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    EXPECT_EQ(one.logits[static_cast<std::size_t>(outcome.record.token)], sorted[0]);
    for (std::size_t i = 0; i < outcome.top.size(); ++i) {
      ASSERT_EQ(one.logits[static_cast<std::size_t>(outcome.top[i].first)], sorted[i]);
    }
  }
}

// A large bias swallows digits of the logits it is added to; what is left are probabilities still.
TEST_P(SampleTest, ProbabilitiesUnderAVeryLargeBias) {
  for (const float value : {1e8F, -1e8F, 1e30F, -1e30F}) {
    SampleCase one{.logits = testing::random_floats(2000, 18, 4.0F)};
    const std::size_t num_biased = value > 0.0F ? 300 : 2000;
    for (std::size_t id = 0; id < num_biased; ++id) {
      one.biases[static_cast<std::int32_t>(id)] = value;
    }
    one.params.num_top = kernels::kSampleTopMax;
    SampleCase biased{.logits = one.logits};
    for (std::size_t id = 0; id < num_biased; ++id) biased.logits[id] += value;
    const auto expected = reference_logprobs(biased);
    for (const auto& [id, logprob] : sample(one).top) {
      const double wanted = expected[static_cast<std::size_t>(id)];
      ASSERT_NEAR(logprob, wanted, 1e-5 * std::max(1.0, std::abs(wanted))) << value;
      biased.params.scored = id;
      ASSERT_EQ(sample(biased).record.logprob, logprob);
    }
  }
}

// Each of them is less than half of what a float can hold beside the large one.
TEST_P(SampleTest, ManySmallProbabilitiesBesideALargeOneAreAllCounted) {
  for (const std::size_t at : {std::size_t{0}, std::size_t{128'000}}) {
    SampleCase one{.logits = std::vector<float>(128'256)};
    one.logits[at] = 16.8F;
    const SampleOutcome outcome = sample(one);
    EXPECT_EQ(outcome.record.token, static_cast<std::int32_t>(at));
    EXPECT_NEAR(outcome.record.logprob, reference_logprobs(one)[at], 3e-5);
  }
}

TEST_P(SampleTest, LogitsOfLargeNumbersKeepTheSmallPart) {
  for (const float level : {-1e30F, -1e8F, 1e8F, 1e30F}) {
    SampleCase one{.logits = std::vector<float>(300, level)};
    one.logits[7] = -kInfinity;
    EXPECT_NEAR(sample(one).record.logprob, -std::log(299.0F), 2e-6F);
    one.params.scored = 7;
    EXPECT_EQ(sample(one).record.logprob, -kInfinity);
  }
}

// Draws many times, at as many positions, and compares with the probabilities by chi squared.
void expect_distribution(const SampleCase& one, const std::vector<double>& probabilities,
                         double limit) {
  constexpr int kDraws = 20000;
  std::vector<SampleCase> draws(kDraws, one);
  for (int i = 0; i < kDraws; ++i) {
    draws[static_cast<std::size_t>(i)].params.seed = 11;
    draws[static_cast<std::size_t>(i)].position = i;
  }
  std::vector<int> counts(one.logits.size());
  for (const SampleOutcome& outcome : testing::sample(kernels::cpu_backend(), draws)) {
    ++counts[static_cast<std::size_t>(outcome.record.token)];
  }
  double chi_squared = 0.0;
  for (std::size_t id = 0; id < counts.size(); ++id) {
    const double expected = probabilities[id] * kDraws;
    if (expected == 0.0) {
      ASSERT_EQ(counts[id], 0) << id;
      continue;
    }
    chi_squared += (counts[id] - expected) * (counts[id] - expected) / expected;
  }
  EXPECT_LT(chi_squared, limit);
}

std::vector<double> softmax(const std::vector<float>& row, double temperature,
                            const std::vector<std::size_t>& kept) {
  std::vector<double> result(row.size());
  double sum = 0.0;
  for (const std::size_t id : kept) {
    result[id] = std::exp(static_cast<double>(row[id]) / temperature);
    sum += result[id];
  }
  for (double& value : result) value /= sum;
  return result;
}

TEST(SampleDrawTest, DrawsFollowTheProbabilities) {
  SampleCase one{.logits = {1.0F, 0.5F, -0.3F, 2.0F, 0.0F, -1.0F, 1.2F, 0.7F}};
  const std::vector<std::size_t> all = {0, 1, 2, 3, 4, 5, 6, 7};
  kernels::SampleRow& params = one.params;
  // Limits: one in a thousand at the degrees of freedom.
  for (const float temperature : {0.5F, 1.0F, 2.0F}) {
    params.temperature = temperature;
    expect_distribution(one, softmax(one.logits, static_cast<double>(temperature), all), 24.3);
  }
  params.temperature = 1.0F;
  params.top_k = 3;
  expect_distribution(one, softmax(one.logits, 1.0, {3, 6, 0}), 13.8);
  // 3: 0.386, 6: 0.173, 0: 0.142, 7: 0.105, ...: three do not hold 0.75, four do.
  params.top_k = 0;
  params.top_p = 0.75F;
  expect_distribution(one, softmax(one.logits, 1.0, {3, 6, 0, 7}), 16.3);
  // The temperature comes first: it widens the nucleus to five (0.783), or narrows it to two
  // (0.805).
  params.temperature = 2.0F;
  expect_distribution(one, softmax(one.logits, 2.0, {3, 6, 0, 7, 1}), 18.5);
  params.temperature = 0.5F;
  expect_distribution(one, softmax(one.logits, 0.5, {3, 6}), 10.9);
  // min_p comes before top_p: of those with 0.3 of the best one's probability, two hold 0.797.
  params.min_p = 0.3F;
  params.temperature = 1.0F;
  expect_distribution(one, softmax(one.logits, 1.0, {3, 6}), 10.9);
  params.top_p = 1.0F;
  expect_distribution(one, softmax(one.logits, 1.0, {3, 6, 0}), 13.8);
  params.top_k = 2;
  expect_distribution(one, softmax(one.logits, 1.0, {3, 6}), 10.9);
  // The temperature comes before it.
  params.top_k = 0;
  params.temperature = 2.0F;
  expect_distribution(one, softmax(one.logits, 2.0, {3, 6, 0, 7, 1, 4, 2}), 22.5);
  params.min_p = 0.0F;
  // The entropy is 1.75: 6 (-log p of 1.75) is the nearest, then 0 (1.95), 7 (2.25), 1 (2.45),
  // which hold 0.505, and 3 (0.95), with which they hold 0.890.
  params.temperature = 1.0F;
  params.typical_p = 0.45F;
  expect_distribution(one, softmax(one.logits, 1.0, {6, 0, 7, 1}), 16.3);
  params.typical_p = 0.6F;
  expect_distribution(one, softmax(one.logits, 1.0, {6, 0, 7, 1, 3}), 18.5);
  // top_p comes before it: of 3, 6, 0 and 7 it is 1.25, and 6, 0 and 3 (0.74) are the nearest.
  params.top_p = 0.75F;
  params.typical_p = 0.5F;
  expect_distribution(one, softmax(one.logits, 1.0, {6, 0, 3}), 13.8);
  params.typical_p = 1.0F;
  // Of the three best, 3 and 6 hold 0.797.
  params.top_p = 0.75F;
  params.temperature = 1.0F;
  params.top_k = 3;
  expect_distribution(one, softmax(one.logits, 1.0, {3, 6}), 10.9);
}

TEST_P(SampleTest, AWideNucleusIsFoundInALargeVocabulary) {
  // Nearly flat: half of the weight is half of the tokens.
  SampleCase one{.logits = testing::random_floats(5000, 13, 0.01F)};
  one.params.temperature = 1.0F;
  one.params.top_p = 0.5F;
  auto sorted = one.logits;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  std::set<std::int32_t> drawn;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    one.params.seed = seed;
    const std::int32_t token = sample(one).record.token;
    ASSERT_GE(one.logits[static_cast<std::size_t>(token)], sorted[2520]);
    drawn.insert(token);
  }
  EXPECT_GT(drawn.size(), 400U);
}

TEST_P(SampleTest, TinyTopPAndTinyTemperatureAreGreedy) {
  SampleCase one{.logits = testing::random_floats(1000, 14)};
  const std::int32_t greedy = sample(one).record.token;
  one.params.temperature = 1.0F;
  one.params.top_p = 1e-9F;
  EXPECT_EQ(sample(one).record.token, greedy);
  one.params.top_p = 1.0F;
  one.params.temperature = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(sample(one).record.token, greedy);
}

TEST_P(SampleTest, ARowWithoutNumbersIsNotValid) {
  for (const std::size_t size : {1, 5, 40, 100}) {
    for (std::size_t at = 0; at < size; ++at) {
      for (const float broken : {NAN, kInfinity}) {
        SampleCase one{.logits = std::vector<float>(size, 1.0F)};
        one.logits[at] = broken;
        EXPECT_FALSE(sample(one).valid());
        one.params.scored = 0;
        EXPECT_FALSE(sample(one).valid());
      }
    }
    SampleCase none{.logits = std::vector<float>(size, -kInfinity)};
    EXPECT_FALSE(sample(none).valid());
    none.logits[size - 1] = 1.0F;
    none.params.num_top = static_cast<std::int32_t>(size);
    none.params.temperature = 1.0F;
    const SampleOutcome outcome = sample(none);
    ASSERT_TRUE(outcome.valid());
    EXPECT_EQ(outcome.record.token, static_cast<std::int32_t>(size) - 1);
    EXPECT_EQ(outcome.top.size(), 1U);
    none.logits[0] = NAN;
    EXPECT_EQ(sample(none).valid(), false);
  }
}

TEST_P(SampleTest, AScoreIsTheBitsOfTheReportedLogprob) {
  SampleCase one{.logits = testing::random_floats(5000, 16, 4.0F)};
  one.params.num_top = 20;
  const SampleOutcome outcome = sample(one);
  for (const auto& [id, logprob] : outcome.top) {
    one.params.scored = id;
    const SampleOutcome scored = sample(one);
    EXPECT_EQ(scored.record.token, id);
    EXPECT_EQ(testing::bits(scored.record.logprob), testing::bits(logprob));
    EXPECT_EQ(scored.top, outcome.top);
  }
}

// The input token may be counted by the op, which has it where a device alone knows it.
TEST_P(SampleTest, AnInputTokenThatIsCountedIsOneMore) {
  for (SampleCase& one : testing::random_cases(203, 200, 9)) {
    if (one.params.counts_input == 0) continue;
    SampleCase counted = one;
    counted.tokens.push_back(one.input);
    counted.params.counts_input = 0;
    testing::expect_same(sample(one), sample(counted));
  }
}

// What the mask forbids is what a bias of -inf forbids, to the bit.
TEST_P(SampleTest, AMaskIsABiasOfMinusInfinity) {
  for (const std::size_t size : {1, 31, 32, 33, 65, 1000}) {
    for (const std::size_t stride : {1, 2, 9, 200}) {
      SampleCase masked{.logits =
                            testing::random_floats(size, static_cast<unsigned>(stride), 4.0F)};
      masked.params.num_top = static_cast<std::int32_t>(std::min<std::size_t>(size, 7));
      masked.params.seed = size;
      SampleCase biased = masked;
      std::vector<std::int32_t> allowed;
      for (std::size_t id = 0; id < size; ++id) {
        if (id % stride == 0) {
          allowed.push_back(static_cast<std::int32_t>(id));
        } else {
          biased.biases[static_cast<std::int32_t>(id)] = -kInfinity;
        }
      }
      masked.mask = testing::mask_of(allowed);
      masked.has_mask = true;
      for (const float temperature : {0.0F, 1.3F}) {
        for (const int top_k : {0, 3}) {
          for (SampleCase* one : {&masked, &biased}) {
            one->params.temperature = temperature;
            one->params.top_k = top_k;
            one->params.top_p = top_k == 0 ? 0.9F : 1.0F;
          }
          const SampleOutcome outcome = sample(masked);
          testing::expect_same(outcome, sample(biased));
          EXPECT_EQ(outcome.record.token % static_cast<std::int32_t>(stride), 0);
        }
      }
    }
  }
}

// Bits of tokens that are not in the vocabulary count for nothing, nor do missing words allow any.
TEST_P(SampleTest, AMaskThatAllowsNothingIsNotValid) {
  SampleCase one{.logits = testing::random_floats(100, 1)};
  one.has_mask = true;
  one.mask = {0};
  EXPECT_FALSE(sample(one).valid());
  one.mask = testing::mask_of({101, 130});
  EXPECT_FALSE(sample(one).valid());
  one.mask = testing::mask_of({3});
  EXPECT_EQ(sample(one).record.token, 3);
}

TEST_P(SampleTest, RawLogprobsAreOfTheRowAsItWas) {
  SampleCase one{.logits = testing::random_floats(3000, 21, 4.0F)};
  one.tokens = {7, 7, 8, 1999};
  one.biases = {{5, 9.0F}, {70, 8.5F}, {2999, -kInfinity}};
  one.params.temperature = 0.9F;
  one.params.repetition_penalty = 1.5F;
  std::vector<std::int32_t> allowed;
  for (std::int32_t id = 0; id < 3000; id += 5) allowed.push_back(id);
  one.mask = testing::mask_of(allowed);
  one.has_mask = true;
  for (const int num_top : {0, 1, 4}) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      one.params.seed = seed;
      one.params.num_top = num_top;
      one.params.is_raw = 0;
      const SampleOutcome processed = sample(one);
      one.params.is_raw = 1;
      const SampleOutcome raw = sample(one);
      EXPECT_EQ(raw.record.token, processed.record.token);
      EXPECT_NE(raw.record.logprob, processed.record.logprob);
      SampleCase scored{.logits = one.logits};
      scored.params.num_top = num_top;
      scored.params.scored = raw.record.token;
      testing::expect_same(raw, sample(scored));
    }
  }
}

// What is reported is what was before the mask of the draw; one that allows all has the bits of
// none.
TEST_P(SampleTest, AMaskOfTheDrawChangesTheDrawAlone) {
  for (SampleCase& one : testing::random_cases(1003, 300, 5)) {
    one.draw_mask.clear();
    const SampleOutcome free = sample(one);
    one.draw_mask.assign(32, ~0U);
    testing::expect_same(sample(one), free);
    if (!free.valid() || one.params.scored >= 0) continue;
    // One token alone: reported as if it had been there already.
    const auto only = static_cast<std::int32_t>(one.params.seed % 1003);
    one.draw_mask = testing::mask_of({only});
    const SampleOutcome forced = sample(one);
    SampleCase scored = one;
    scored.draw_mask.clear();
    scored.params.scored = only;
    if (forced.valid()) testing::expect_same(forced, sample(scored));
    // If it was impossible before the mask, nothing can be drawn.
    scored.params.is_raw = 0;
    EXPECT_EQ(forced.valid(), sample(scored).record.logprob > -kInfinity);
    one.draw_mask = {0};
    EXPECT_FALSE(sample(one).valid());
  }
}

// The same tokens on every instruction set; the same bits on any number of threads.
TEST_P(SampleTest, DrawsTheTokensOfEveryOther) {
  for (const auto& [width, count] :
       {std::pair<std::size_t, int>{3, 300}, {97, 1500}, {2003, 300}}) {
    const auto cases = testing::random_cases(width, count, static_cast<unsigned>(width));
    const auto here = testing::sample(*GetParam(), cases);
    const auto by_twin = testing::sample(kernels::reference_backend(), cases);
    const auto by_three = testing::sample(*GetParam(), cases, 3);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      SCOPED_TRACE(i);
      ASSERT_EQ(here[i].valid(), by_twin[i].valid());
      ASSERT_EQ(here[i].record.token, by_twin[i].record.token);
      testing::expect_same(here[i], by_three[i]);
    }
  }
}

TEST(DrawWeightTest, IsTheExponentialInItsUnits) {
  for (float x = -30.0F; x <= 0.0F; x += 0.0037F) {
    const double expected = std::exp(static_cast<double>(x)) * 0x1.0p40;
    ASSERT_NEAR(kernels::draw_weight(x, 0.0F, 1.0F), expected, 3e-7 * expected + 1.0) << x;
  }
  EXPECT_EQ(kernels::draw_weight(5.0F, 5.0F, 0.3F), 0x1.0p40F);
  EXPECT_EQ(kernels::draw_weight(-kInfinity, 5.0F, 0.3F), 0.0F);
  EXPECT_EQ(kernels::draw_weight(4.9F, 5.0F, std::numeric_limits<float>::denorm_min()), 0.0F);
}

}  // namespace
}  // namespace lmtp
