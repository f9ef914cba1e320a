#include "lmtp/sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>

#include "kernels/backend.h"

namespace lmtp {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> random_row(std::size_t size, unsigned seed, float scale = 4.0F) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0F, scale);
  std::vector<float> row(size);
  for (float& logit : row) logit = normal(generator);
  return row;
}

scheduler::TokenResult sample(std::vector<float> row, const SamplingParams& params,
                              const std::vector<TokenId>& tokens = {1}) {
  sampling::Sampler sampler(kernels::cpu_backend(), static_cast<int>(row.size()));
  auto result = sampler.sample(row, params, tokens);
  EXPECT_TRUE(result.ok());
  return *result;
}

// The same, in double, sorted and summed as the definition says: what is reported before a draw.
std::vector<double> reference_logprobs(const std::vector<float>& row, const SamplingParams& params,
                                       const std::vector<TokenId>& tokens) {
  std::vector<double> logits(row.begin(), row.end());
  std::map<TokenId, int> counts;
  for (const TokenId token : tokens) ++counts[token];
  for (const auto& [id, count] : counts) {
    double& logit = logits.at(static_cast<std::size_t>(id));
    const auto penalty = static_cast<double>(params.repetition_penalty);
    logit = logit > 0.0 ? logit / penalty : logit * penalty;
    logit -= static_cast<double>(params.presence_penalty);
    logit -= static_cast<double>(params.frequency_penalty) * count;
  }
  if (params.logit_bias != nullptr) {
    for (std::size_t i = 0; i < params.logit_bias->ids.size(); ++i) {
      logits.at(static_cast<std::size_t>(params.logit_bias->ids[i])) +=
          static_cast<double>(params.logit_bias->values[i]);
    }
  }
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const double logit : logits) sum += std::exp(logit - max);
  for (double& logit : logits) logit = (logit - max) - std::log(sum);
  return logits;
}

TEST(SamplerTest, GreedyAndReportedLogprobsAreTheReferences) {
  std::mt19937 generator(3);
  for (const std::size_t size : {1, 2, 17, 97, 1000, 50257}) {
    const auto row = random_row(size, static_cast<unsigned>(size));
    SamplingParams params;
    params.repetition_penalty = 1.7F;
    params.presence_penalty = 0.3F;
    params.frequency_penalty = -0.2F;
    params.top_logprobs = 5;
    std::vector<TokenId> tokens(40);
    for (TokenId& token : tokens) token = static_cast<TokenId>(generator() % size);
    auto bias = std::make_shared<LogitBias>();
    for (std::size_t id = 0; id < size; id += 2) {
      bias->ids.push_back(static_cast<TokenId>(id));
      bias->values.push_back(id % 3 == 0 ? -100.0F : 0.5F);
    }
    params.logit_bias = bias;
    const auto expected = reference_logprobs(row, params, tokens);
    std::vector<TokenId> order(size);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
      return expected[static_cast<std::size_t>(a)] > expected[static_cast<std::size_t>(b)];
    });
    const auto result = sample(row, params, tokens);
    EXPECT_EQ(result.token, order[0]);
    EXPECT_NEAR(result.logprob, expected[static_cast<std::size_t>(order[0])], 1e-5);
    ASSERT_EQ(result.top_logprobs.size(), std::min<std::size_t>(5, size));
    for (std::size_t i = 0; i < result.top_logprobs.size(); ++i) {
      EXPECT_EQ(result.top_logprobs[i].token, order[i]);
      EXPECT_NEAR(result.top_logprobs[i].logprob, expected[static_cast<std::size_t>(order[i])],
                  1e-5);
    }
  }
}

TEST(SamplerTest, TiesGoToTheLowestId) {
  SamplingParams params;
  params.top_logprobs = 4;
  std::vector<float> row(300, -1.0F);
  row[250] = row[41] = row[40] = row[299] = row[7] = 2.0F;
  const auto result = sample(row, params);
  EXPECT_EQ(result.token, 7);
  ASSERT_EQ(result.top_logprobs.size(), 4U);
  EXPECT_EQ(result.top_logprobs[1].token, 40);
  EXPECT_EQ(result.top_logprobs[2].token, 41);
  EXPECT_EQ(result.top_logprobs[3].token, 250);
  params.top_k = 2;
  params.temperature = 1.0F;
  std::set<TokenId> drawn;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    params.seed = seed;
    drawn.insert(sample(row, params).token);
  }
  EXPECT_EQ(drawn, (std::set<TokenId>{7, 40}));
}

TEST(SamplerTest, TopLogprobsUpToTheLimitAreExact) {
  for (const int num_top : {0, 1, 2, 100, 1024, 5000}) {
    const auto row = random_row(20000, 8);
    SamplingParams params;
    params.top_logprobs = num_top;
    const auto result = sample(row, params);
    const auto expected = static_cast<std::size_t>(std::clamp(num_top, 1, kMaxTopLogprobs));
    ASSERT_EQ(result.top_logprobs.size(), expected);
    auto sorted = row;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    for (std::size_t i = 0; i < expected; ++i) {
      const auto id = static_cast<std::size_t>(result.top_logprobs[i].token);
      ASSERT_EQ(row[id], sorted[i]);
    }
  }
}

TEST(SamplerTest, AMaskOfTwentyFiveThousandLeavesWhatItAllows) {
  auto row = random_row(50257, 9);
  auto bias = std::make_shared<LogitBias>();
  for (TokenId id = 0; id < 50000; id += 2) {
    bias->ids.push_back(id);
    bias->values.push_back(-100.0F);
  }
  row[1000] = 40.0F;
  SamplingParams params;
  params.logit_bias = bias;
  params.temperature = 1.0F;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    params.seed = seed;
    const auto result = sample(row, params);
    EXPECT_TRUE(result.token % 2 == 1 || result.token >= 50000);
  }
}

// A large bias swallows digits of the logits it is added to; what is left are probabilities still.
TEST(SamplerTest, ProbabilitiesUnderAVeryLargeBias) {
  constexpr std::size_t kVocabSize = 2000;
  for (const float value : {1e8F, -1e8F, 1e30F, -1e30F}) {
    auto bias = std::make_shared<LogitBias>();
    const TokenId num_biased = value > 0.0F ? 300 : static_cast<TokenId>(kVocabSize);
    for (TokenId id = 0; id < num_biased; ++id) {
      bias->ids.push_back(id);
      bias->values.push_back(value);
    }
    SamplingParams params;
    params.logit_bias = bias;
    params.top_logprobs = kMaxTopLogprobs;
    auto row = random_row(kVocabSize, 18);
    const auto result = sample(row, params);
    for (TokenId id = 0; id < num_biased; ++id) row[static_cast<std::size_t>(id)] += value;
    const auto expected = reference_logprobs(row, {}, {});
    sampling::Sampler sampler(kernels::cpu_backend(), kVocabSize);
    for (const auto& entry : result.top_logprobs) {
      const double wanted = expected[static_cast<std::size_t>(entry.token)];
      ASSERT_NEAR(entry.logprob, wanted, 1e-5 * std::max(1.0, std::abs(wanted))) << value;
      ASSERT_EQ(sampler.score(row, entry.token)->logprob, entry.logprob);
    }
  }
}

// Draws many times, at as many positions, and compares with the probabilities by chi squared.
void expect_distribution(const std::vector<float>& row, SamplingParams params,
                         const std::vector<double>& probabilities, double limit) {
  constexpr int kDraws = 20000;
  sampling::Sampler sampler(kernels::cpu_backend(), static_cast<int>(row.size()));
  std::vector<int> counts(row.size());
  std::vector<TokenId> tokens;
  params.seed = 11;
  for (int i = 0; i < kDraws; ++i) {
    tokens.push_back(0);
    auto copy = row;
    ++counts[static_cast<std::size_t>(sampler.sample(copy, params, tokens)->token)];
  }
  double chi_squared = 0.0;
  for (std::size_t id = 0; id < row.size(); ++id) {
    const double expected = probabilities[id] * kDraws;
    if (expected == 0.0) {
      ASSERT_EQ(counts[id], 0) << id;
      continue;
    }
    chi_squared += (counts[id] - expected) * (counts[id] - expected) / expected;
  }
  EXPECT_LT(chi_squared, limit);
}

std::vector<double> softmax(const std::vector<float>& row, double temperature) {
  std::vector<double> result(row.size());
  double sum = 0.0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    result[i] = std::exp(static_cast<double>(row[i]) / temperature);
    sum += result[i];
  }
  for (double& value : result) value /= sum;
  return result;
}

void keep_only(std::vector<double>& probabilities, const std::vector<std::size_t>& ids) {
  std::vector<double> kept(probabilities.size(), 0.0);
  double sum = 0.0;
  for (const std::size_t id : ids) {
    kept[id] = probabilities[id];
    sum += kept[id];
  }
  for (double& value : kept) value /= sum;
  probabilities = kept;
}

TEST(SamplerTest, DrawsFollowTheProbabilities) {
  const std::vector<float> row = {1.0F, 0.5F, -0.3F, 2.0F, 0.0F, -1.0F, 1.2F, 0.7F};
  SamplingParams params;
  // Limits: one in a thousand at the degrees of freedom.
  for (const float temperature : {0.5F, 1.0F, 2.0F}) {
    params.temperature = temperature;
    expect_distribution(row, params, softmax(row, static_cast<double>(temperature)), 24.3);
  }
  params.temperature = 1.0F;
  params.top_k = 3;
  auto expected = softmax(row, 1.0);
  keep_only(expected, {3, 6, 0});
  expect_distribution(row, params, expected, 13.8);
  // 3: 0.386, 6: 0.173, 0: 0.142, 7: 0.105, ...: three do not hold 0.75, four do.
  params.top_k = 0;
  params.top_p = 0.75F;
  expected = softmax(row, 1.0);
  keep_only(expected, {3, 6, 0, 7});
  expect_distribution(row, params, expected, 16.3);
  // The temperature comes first: it widens the nucleus to five (0.783), or narrows it to two
  // (0.805).
  params.temperature = 2.0F;
  expected = softmax(row, 2.0);
  keep_only(expected, {3, 6, 0, 7, 1});
  expect_distribution(row, params, expected, 18.5);
  params.temperature = 0.5F;
  expected = softmax(row, 0.5);
  keep_only(expected, {3, 6});
  expect_distribution(row, params, expected, 10.9);
  params.temperature = 1.0F;
  // Of the three best, 3 and 6 hold 0.797.
  params.top_k = 3;
  expected = softmax(row, 1.0);
  keep_only(expected, {3, 6});
  expect_distribution(row, params, expected, 10.9);
}

TEST(SamplerTest, AWideNucleusIsFoundInALargeVocabulary) {
  // Nearly flat: half of the weight is half of the tokens.
  auto row = random_row(5000, 13, 0.01F);
  SamplingParams params;
  params.temperature = 1.0F;
  params.top_p = 0.5F;
  auto sorted = row;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  std::set<TokenId> drawn;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    params.seed = seed;
    const TokenId token = sample(row, params).token;
    ASSERT_GE(row[static_cast<std::size_t>(token)], sorted[2520]);
    drawn.insert(token);
  }
  EXPECT_GT(drawn.size(), 1200U);
}

TEST(SamplerTest, TinyTopPAndTinyTemperatureAreGreedy) {
  const auto row = random_row(1000, 14);
  const TokenId greedy = sample(row, {}).token;
  SamplingParams params;
  params.temperature = 1.0F;
  params.top_p = 1e-9F;
  EXPECT_EQ(sample(row, params).token, greedy);
  params.top_p = 1.0F;
  params.temperature = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(sample(row, params).token, greedy);
}

TEST(SamplerTest, TheDrawnTokenIsAlwaysListed) {
  const std::vector<float> row(50, 0.0F);
  SamplingParams params;
  params.temperature = 1.0F;
  params.top_logprobs = 2;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    params.seed = seed;
    const auto result = sample(row, params);
    EXPECT_TRUE(std::any_of(result.top_logprobs.begin(), result.top_logprobs.end(),
                            [&](const auto& entry) { return entry.token == result.token; }));
    EXPECT_LE(result.top_logprobs.size(), 3U);
    EXPECT_NEAR(result.logprob, -std::log(50.0), 1e-6);
  }
}

TEST(SamplerTest, ARowWithoutNumbersIsAnError) {
  for (const float broken : {NAN, kInfinity}) {
    auto row = random_row(100, 15);
    row[60] = broken;
    sampling::Sampler sampler(kernels::cpu_backend(), 100);
    EXPECT_FALSE(sampler.score(row, 3).ok());
    EXPECT_FALSE(sampler.sample(row, {}, {}).ok());
  }
  std::vector<float> impossible(100, -kInfinity);
  sampling::Sampler sampler(kernels::cpu_backend(), 100);
  EXPECT_FALSE(sampler.sample(impossible, {}, {}).ok());
  impossible[7] = 1.0F;
  SamplingParams params;
  params.top_logprobs = 10;
  params.temperature = 1.0F;
  const auto result = sampler.sample(impossible, params, {});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->token, 7);
  EXPECT_EQ(result->top_logprobs.size(), 1U);
}

TEST(SamplerTest, AScoreIsTheBitsOfTheReportedLogprob) {
  const auto row = random_row(50257, 16);
  SamplingParams params;
  params.top_logprobs = 20;
  const auto result = sample(row, params);
  sampling::Sampler sampler(kernels::cpu_backend(), 50257);
  for (const auto& entry : result.top_logprobs) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(sampler.score(row, entry.token)->logprob),
              std::bit_cast<std::uint32_t>(entry.logprob));
  }
}

TEST(SamplerTest, PenaltiesOfOneStreamDoNotReachTheNext) {
  const auto row = random_row(64, 17);
  sampling::Sampler sampler(kernels::cpu_backend(), 64);
  SamplingParams penal;
  penal.frequency_penalty = 50.0F;
  std::vector<TokenId> all(64);
  std::iota(all.begin(), all.end(), 0);
  auto first = row;
  ASSERT_TRUE(sampler.sample(first, penal, all).ok());
  SamplingParams mild;
  mild.frequency_penalty = 0.5F;
  auto second = row;
  const std::vector<TokenId> none;
  const auto result = sampler.sample(second, mild, none);
  EXPECT_EQ(second, row);
  EXPECT_EQ(result->token, sample(row, {}).token);
}

// A mask that allows these tokens.
std::shared_ptr<const TokenMask> mask_of(std::size_t vocab_size, const std::set<TokenId>& allowed) {
  auto mask = std::make_shared<TokenMask>();
  mask->num_bytes = static_cast<int>((vocab_size + 7) / 8);
  mask->words.resize((vocab_size + 63) / 64);
  for (const TokenId token : allowed) {
    mask->words[static_cast<std::size_t>(token) / 64] |= std::uint64_t{1} << (token % 64);
  }
  return mask;
}

void expect_same(const scheduler::TokenResult& a, const scheduler::TokenResult& b) {
  EXPECT_EQ(a.token, b.token);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(a.logprob), std::bit_cast<std::uint32_t>(b.logprob));
  EXPECT_EQ(a.top_logprobs, b.top_logprobs);
}

// On every instruction set: what the mask forbids is what a bias of -inf forbids, to the bit.
TEST(SamplerTest, AMaskIsABiasOfMinusInfinity) {
  for (const kernels::Backend* backend : kernels::cpu_backends()) {
    for (const std::size_t size : {1, 63, 64, 65, 1000, 50257}) {
      for (const std::size_t stride : {1, 2, 9, 200}) {
        std::set<TokenId> allowed;
        auto as_bias = std::make_shared<LogitBias>();
        for (std::size_t id = 0; id < size; ++id) {
          if (id % stride == 0) {
            allowed.insert(static_cast<TokenId>(id));
          } else {
            as_bias->ids.push_back(static_cast<TokenId>(id));
            as_bias->values.push_back(-kInfinity);
          }
        }
        SamplingParams params;
        params.top_logprobs = 7;
        params.seed = size;
        for (const float temperature : {0.0F, 1.3F}) {
          for (const int top_k : {0, 3}) {
            params.temperature = temperature;
            params.top_k = top_k;
            params.top_p = top_k == 0 ? 0.9F : 1.0F;
            const auto row = random_row(size, static_cast<unsigned>(stride));
            sampling::Sampler sampler(*backend, static_cast<int>(size));
            auto masked_row = row;
            auto biased_row = row;
            params.mask = mask_of(size, allowed);
            params.logit_bias = nullptr;
            const auto masked = sampler.sample(masked_row, params, {});
            params.mask = nullptr;
            params.logit_bias = as_bias;
            const auto biased = sampler.sample(biased_row, params, {});
            ASSERT_TRUE(masked.ok() && biased.ok());
            expect_same(*masked, *biased);
            EXPECT_TRUE(allowed.contains(masked->token));
            for (const auto& entry : masked->top_logprobs) {
              EXPECT_TRUE(allowed.contains(entry.token));
            }
          }
        }
      }
    }
  }
}

// Bits of tokens that are not in the vocabulary count for nothing, nor do missing words allow any.
TEST(SamplerTest, AMaskThatAllowsNothingIsTheErrorOfTheRow) {
  sampling::Sampler sampler(kernels::cpu_backend(), 100);
  auto mask = std::make_shared<TokenMask>();
  mask->words = {0, std::uint64_t{1} << 40, 5};
  SamplingParams params;
  params.mask = mask;
  auto row = random_row(100, 1);
  EXPECT_EQ(sampler.sample(row, params, {}).error().message, sampling::kNoNumbers);
  mask->words = {std::uint64_t{1} << 3};
  row = random_row(100, 1);
  EXPECT_EQ(sampler.sample(row, params, {})->token, 3);
}

TEST(SamplerTest, RawLogprobsAreOfTheRowAsItWas) {
  const auto row = random_row(3000, 21);
  const std::vector<TokenId> tokens = {7, 7, 8, 1999};
  auto bias = std::make_shared<LogitBias>();
  bias->ids = {5, 70, 2999};
  bias->values = {9.0F, 8.5F, -kInfinity};
  SamplingParams params;
  params.temperature = 0.9F;
  params.repetition_penalty = 1.5F;
  params.logit_bias = bias;
  std::set<TokenId> allowed;
  for (TokenId id = 0; id < 3000; id += 5) allowed.insert(id);
  params.mask = mask_of(3000, allowed);
  sampling::Sampler sampler(kernels::cpu_backend(), 3000);
  for (const int num_top : {0, 1, 4}) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      params.seed = seed;
      params.top_logprobs = num_top;
      params.raw_logprobs = false;
      const auto processed = sample(row, params, tokens);
      params.raw_logprobs = true;
      const auto raw = sample(row, params, tokens);
      EXPECT_EQ(raw.token, processed.token);
      EXPECT_NE(raw.logprob, processed.logprob);
      const auto scored = *sampler.score(row, raw.token, num_top);
      EXPECT_EQ(raw.logprob, scored.logprob);
      if (num_top > 0) {
        EXPECT_EQ(raw.top_logprobs, scored.top_logprobs);
      } else {
        EXPECT_EQ(raw.top_logprobs.size(), 1U);
      }
    }
  }
  // Where nothing is edited, both are the same.
  SamplingParams plain;
  const auto processed = sample(row, plain, tokens);
  plain.raw_logprobs = true;
  expect_same(sample(row, plain, tokens), processed);
}

TEST(SamplerTest, AScoreListsTheBestAndTheTokenItself) {
  const auto row = random_row(5000, 22);
  SamplingParams params;
  params.top_logprobs = 6;
  const auto best = sample(row, params);
  sampling::Sampler sampler(kernels::cpu_backend(), 5000);
  expect_same(*sampler.score(row, best.token, 6), best);
  EXPECT_TRUE(sampler.score(row, best.token)->top_logprobs.empty());
  const auto other = *sampler.score(row, 4999, 6);
  ASSERT_EQ(other.top_logprobs.size(), 7U);
  EXPECT_EQ(other.top_logprobs.back(), (TokenLogprob{4999, other.logprob}));
  EXPECT_EQ(sampler.score(row, 4999, 1 << 20)->top_logprobs.size(),
            static_cast<std::size_t>(kMaxTopLogprobs) + 1);
}

}  // namespace
}  // namespace lmtp
