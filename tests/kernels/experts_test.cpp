// The ops of mixtures of experts.
#include "kernels/experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <list>
#include <numeric>
#include <random>
#include <utility>

#include "code_rows.h"
#include "kernel_support.h"
#include "slice_rows.h"

namespace lmtp {
namespace {

using kernels::Routing;
using kernels::Stream;
using kernels::WeightType;
using kernels::WorkerPool;
using testing::PackedOnHost;
using testing::view;

struct Routed {
  std::vector<std::int32_t> experts;
  std::vector<float> weights;
};

Routed route(std::vector<float> logits, std::int64_t num_experts, const Routing& by,
             const std::vector<float>& bias = {}) {
  WorkerPool pool(2);
  Stream stream(kernels::cpu_backend(), pool);
  const std::size_t rows = logits.size() / static_cast<std::size_t>(num_experts);
  Routed to{std::vector<std::int32_t>(rows * static_cast<std::size_t>(by.top_k), -1),
            std::vector<float>(rows * static_cast<std::size_t>(by.top_k), NAN)};
  kernels::route(stream, {.logits = view<const float>(logits, num_experts),
                          .routing = by,
                          .choice_bias = bias.empty() ? nullptr : bias.data(),
                          .experts = to.experts.data(),
                          .weights = view<float>(to.weights, by.top_k)});
  return to;
}

void expect_weights(const std::vector<float>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-6) << i;
}

using ExpertIds = std::vector<std::int32_t>;

TEST(RouteTest, WeightsAreWhatEachKindSays) {
  const std::vector<float> logits = {1.0F, 3.0F, -2.0F, 2.0F};
  const double all = std::exp(1.0) + std::exp(3.0) + std::exp(-2.0) + std::exp(2.0);
  const auto soft = route(logits, 4, {.top_k = 2});
  EXPECT_EQ(soft.experts, (ExpertIds{1, 3}));
  expect_weights(soft.weights, {std::exp(3.0) / all, std::exp(2.0) / all});
  const double two = std::exp(3.0) + std::exp(2.0);
  expect_weights(route(logits, 4, {.top_k = 2, .renormalise = true, .scale = 2.5F}).weights,
                 {2.5 * std::exp(3.0) / two, 2.5 * std::exp(2.0) / two});
  expect_weights(route(logits, 4, {.kind = Routing::Kind::kSoftmaxOfChosen, .top_k = 2}).weights,
                 {std::exp(3.0) / two, std::exp(2.0) / two});
  const auto sigmoid = [](double x) { return 1.0 / (1.0 + std::exp(-x)); };
  expect_weights(route(logits, 4, {.kind = Routing::Kind::kSigmoid, .top_k = 2}).weights,
                 {sigmoid(3.0), sigmoid(2.0)});
  const double sum = sigmoid(3.0) + sigmoid(2.0);
  expect_weights(
      route(logits, 4,
            {.kind = Routing::Kind::kSigmoid, .top_k = 2, .renormalise = true, .sum_added = 0.5F})
          .weights,
      {sigmoid(3.0) / (sum + 0.5), sigmoid(2.0) / (sum + 0.5)});
  expect_weights(
      route(logits, 4,
            {.kind = Routing::Kind::kSigmoid, .top_k = 2, .renormalise = true, .sum_min = 4.0F})
          .weights,
      {sigmoid(3.0) / 4.0, sigmoid(2.0) / 4.0});
}

TEST(RouteTest, ABiasChoosesAndWeighsNothing) {
  const auto routed =
      route({1.0F, 3.0F, -2.0F, 2.0F}, 4, {.kind = Routing::Kind::kSigmoid, .top_k = 2},
            {0.5F, 0.0F, 2.0F, 0.0F});
  EXPECT_EQ(routed.experts, (ExpertIds{0, 2}));
  expect_weights(routed.weights, {1.0 / (1.0 + std::exp(-1.0)), 1.0 / (1.0 + std::exp(2.0))});
}

TEST(RouteTest, EqualScoresGoToTheLowerNumbersAndEveryExpertIsChosenOnce) {
  EXPECT_EQ(route({1.0F, 1.0F, 1.0F, 1.0F}, 4, {.top_k = 2}).experts, (ExpertIds{0, 1}));
  EXPECT_EQ(route({0.0F, 1.0F, 2.0F, 1.0F}, 4, {.top_k = 2}).experts, (ExpertIds{1, 2}));
  EXPECT_EQ(route({NAN, NAN, NAN}, 3, {.top_k = 2}).experts, (ExpertIds{0, 1}));
  EXPECT_EQ(route({-3.0F, 5.0F, 1.0F}, 3, {.top_k = 3}).experts, (ExpertIds{0, 1, 2}));
  EXPECT_EQ(route({7.0F}, 1, {.top_k = 1}).experts, (ExpertIds{0}));
}

TEST(RouteTest, GroupsAreChosenByTheirTwoBest) {
  // Sums of two: 3, 2.5, 2.6; the best expert is in the worst group.
  const std::vector<float> logits = {1.0F, 2.0F, 0.0F, 2.4F, 0.1F, 0.0F, 1.2F, 1.4F, -9.0F};
  const Routing by{
      .kind = Routing::Kind::kSoftmaxOfChosen, .top_k = 3, .groups = 3, .top_groups = 2};
  EXPECT_EQ(route(logits, 9, by).experts, (ExpertIds{1, 6, 7}));
}

TEST(RouteTest, ARowIsItsOwn) {
  constexpr std::int64_t kRows = 37;
  constexpr std::int64_t kExperts = 60;
  const auto logits = testing::random_floats(kRows * kExperts, 3, 2.0F);
  const Routing by{.top_k = 5, .renormalise = true, .scale = 1.5F};
  const auto all = route(logits, kExperts, by);
  for (std::int64_t row = 0; row < kRows; ++row) {
    const auto alone = route(
        {logits.begin() + row * kExperts, logits.begin() + (row + 1) * kExperts}, kExperts, by);
    ASSERT_TRUE(std::equal(alone.experts.begin(), alone.experts.end(),
                           all.experts.begin() + row * by.top_k));
    testing::expect_rows(alone.weights, all.weights, row, by.top_k);
  }
}

// Rows that are sorted by expert.
struct Sorted {
  Sorted(const std::vector<std::int32_t>& experts, int top_k, int num_experts)
      : offsets(static_cast<std::size_t>(num_experts) + 1, -1),
        rows(experts.size(), -1),
        slots(experts.size(), -1) {
    WorkerPool pool(1);
    Stream stream(kernels::cpu_backend(), pool);
    kernels::expert_rows(stream, {.experts = experts.data(),
                                  .m = static_cast<std::int64_t>(experts.size()) / top_k,
                                  .top_k = top_k,
                                  .num_experts = num_experts,
                                  .offsets = offsets.data(),
                                  .rows = rows.data(),
                                  .slots = slots.data()});
  }
  std::vector<std::int32_t> offsets;
  std::vector<std::int32_t> rows;
  std::vector<std::int32_t> slots;
};

TEST(ExpertRowsTest, SortsByExpertAndKeepsTheOrderOfRows) {
  const Sorted sorted({1, 3, 0, 3, 1, 3}, 2, 5);
  EXPECT_EQ(sorted.offsets, (ExpertIds{0, 1, 3, 3, 6, 6}));
  EXPECT_EQ(sorted.rows, (ExpertIds{1, 0, 2, 0, 1, 2}));
  EXPECT_EQ(sorted.slots, (ExpertIds{1, 3, 0, 4, 2, 5}));
}

class ExpertsTest : public testing::BackendTest {};

INSTANTIATE_TEST_SUITE_P(Backends, ExpertsTest, ::testing::ValuesIn(kernels::cpu_backends()),
                         testing::backend_name);

constexpr std::int64_t kExpertOutputs = 203;  // seven panels
constexpr std::int64_t kExpertInputs = 172;
constexpr int kNumExperts = 6;

// Experts of one type, each with a bias.
struct ExpertWeights {
  explicit ExpertWeights(WeightType type, kernels::CodeType code_type = kernels::CodeType::kE4M3) {
    using testing::Codes;
    for (unsigned e = 0; e < kNumExperts; ++e) {
      biases.push_back(testing::random_floats(kExpertOutputs, 70 + e));
      const kernels::Grouping by{.codes = code_type, .group = 32};
      if (type == WeightType::kWidened) {
        Codes codes(kExpertOutputs, kExpertInputs, by);
        for (int i = 0; i < 99; ++i) codes.code(i, i) = static_cast<std::uint8_t>(e);
        weights.push_back(
            testing::pack_codes_on_host(type, kExpertOutputs, kExpertInputs, by, codes));
      } else {
        auto numbers = testing::random_floats(kExpertOutputs * kExpertInputs, e, 0.1F);
        weights.push_back(
            testing::pack_floats_on_host(type, kExpertOutputs, kExpertInputs, {}, numbers));
      }
    }
    auto bias = biases.begin();
    for (const PackedOnHost& one : weights) experts.push_back({one.weight, (bias++)->data()});
  }
  std::list<PackedOnHost> weights;
  std::list<std::vector<float>> biases;
  std::vector<kernels::ExpertLinear> experts;
};

// How many of `total` slots each expert has.
std::vector<std::vector<std::int32_t>> splits(std::int32_t total) {
  std::vector<std::vector<std::int32_t>> all;
  for (int e = 0; e < kNumExperts; ++e) {  // one has all
    all.emplace_back(kNumExperts, 0);
    all.back()[static_cast<std::size_t>(e)] = total;
  }
  std::mt19937 generator(9);
  for (int i = 0; i < 6; ++i) {  // by chance; of even ones experts have none
    all.emplace_back(kNumExperts, 0);
    for (std::int32_t slot = 0; slot < total; ++slot) {
      ++all.back()[generator() % (i % 2 == 0 ? 3 : kNumExperts)];
    }
  }
  return all;
}

TEST_P(ExpertsTest, EachExpertHasTheBitsOfItsLinearAlone) {
  using kernels::CodeType;
  for (const auto& [type, codes] : {std::pair{WeightType::kF32, CodeType::kInt4},
                                    {WeightType::kBF16, CodeType::kInt4},
                                    {WeightType::kInt8, CodeType::kInt4},
                                    {WeightType::kInt4, CodeType::kInt4},
                                    {WeightType::kWidened, CodeType::kE4M3},
                                    {WeightType::kWidened, CodeType::kE2M1}}) {
    const ExpertWeights weights(type, codes);
    for (const std::int32_t total : {1, 2, 7, 64}) {
      auto x = testing::random_floats(static_cast<std::size_t>(total) * kExpertInputs, 5);
      for (const auto& counts : splits(total)) {
        ExpertIds offsets = {0};
        std::vector<float> expected(static_cast<std::size_t>(total) * kExpertOutputs, NAN);
        const auto y_of = [&](std::vector<float>& of, int e) {
          const auto at = static_cast<std::size_t>(e);
          return testing::slice_rows(view<float>(of, kExpertOutputs), offsets[at], counts[at]);
        };
        for (int e = 0; e < kNumExperts; ++e) {
          const auto at = static_cast<std::size_t>(e);
          offsets.push_back(offsets[at] + counts[at]);
          WorkerPool pool(1);
          Stream stream(*GetParam(), pool);
          kernels::linear(stream, {.x = testing::slice_rows(view<const float>(x, kExpertInputs),
                                                            offsets[at], counts[at]),
                                   .weight = weights.experts[at].weight,
                                   .bias = weights.experts[at].bias,
                                   .y = y_of(expected, e)});
        }
        for (const int threads : {1, 2, 5}) {
          WorkerPool pool(threads);
          Stream stream(*GetParam(), pool);
          std::vector<float> y(expected.size(), NAN);
          kernels::expert_linear(stream, {.x = view<const float>(x, kExpertInputs),
                                          .offsets = offsets.data(),
                                          .experts = weights.experts.data(),
                                          .num_experts = kNumExperts,
                                          .y = view<float>(y, kExpertOutputs)});
          testing::expect_same_bits(y, expected);
          ASSERT_FALSE(HasFatalFailure())
              << "type " << static_cast<int>(type) << ", " << total << " slots, " << threads;
        }
      }
    }
  }
}

// Whichever worker takes which task.
TEST_P(ExpertsTest, StepsAfterTheFirstTakeNoMemory) {
  const ExpertWeights weights(WeightType::kBF16);
  auto x = testing::random_floats(64 * kExpertInputs, 5);
  const ExpertIds offsets = {0, 1, 1, 40, 41, 60, 64};
  std::vector<float> y(64 * kExpertOutputs);
  WorkerPool pool(3);
  Stream stream(*GetParam(), pool);
  std::int64_t num_moves = 0;
  for (int step = 0; step < 20; ++step) {
    kernels::expert_linear(stream, {.x = view<const float>(x, kExpertInputs),
                                    .offsets = offsets.data(),
                                    .experts = weights.experts.data(),
                                    .num_experts = kNumExperts,
                                    .y = view<float>(y, kExpertOutputs)});
    std::int64_t moves = stream.num_scratch_moves();
    for (int worker = 0; worker < 3; ++worker) moves += stream.lane(worker).num_scratch_moves();
    if (step == 0) num_moves = moves;
    ASSERT_EQ(moves, num_moves) << "step " << step;
  }
}

// What a batch is combined from: rows of three experts each, in the order of a step.
struct CombinedBatch {
  static constexpr int kTopK = 3;
  static constexpr std::int64_t kWidth = 45;

  explicit CombinedBatch(std::int64_t rows)
      : weights(testing::random_floats(static_cast<std::size_t>(rows * kTopK), 21)),
        shared(testing::random_floats(static_cast<std::size_t>(rows * kWidth), 22)),
        gates(testing::random_floats(static_cast<std::size_t>(rows), 23)),
        residual(testing::random_floats(static_cast<std::size_t>(rows * kWidth), 24)) {
    std::mt19937 generator(4);
    for (std::int64_t row = 0; row < rows; ++row) {
      std::vector<std::int32_t> all(kNumExperts);
      std::iota(all.begin(), all.end(), 0);
      std::shuffle(all.begin(), all.end(), generator);
      std::sort(all.begin(), all.begin() + kTopK);
      experts.insert(experts.end(), all.begin(), all.begin() + kTopK);
    }
  }

  // The rows [first, first + count) as a batch of their own.
  std::vector<float> run(const kernels::Backend& backend, std::int64_t first, std::int64_t count) {
    const Sorted sorted(
        {experts.begin() + first * kTopK, experts.begin() + (first + count) * kTopK}, kTopK,
        kNumExperts);
    // What an expert gives is a function of row and expert.
    std::vector<float> x;
    for (int e = 0; e < kNumExperts; ++e) {
      for (std::int32_t i = sorted.offsets[static_cast<std::size_t>(e)];
           i < sorted.offsets[static_cast<std::size_t>(e) + 1]; ++i) {
        const auto row = first + sorted.rows[static_cast<std::size_t>(i)];
        const auto own =
            testing::random_floats(kWidth, static_cast<unsigned>(row * kNumExperts + e));
        x.insert(x.end(), own.begin(), own.end());
      }
    }
    std::vector<float> y(residual.begin() + first * kWidth,
                         residual.begin() + (first + count) * kWidth);
    WorkerPool pool(2);
    Stream stream(backend, pool);
    const auto rows_of = [&](std::vector<float>& of, std::int64_t columns) {
      return testing::slice_rows(view<const float>(of, columns), first, count);
    };
    kernels::combine(stream, {.x = view<const float>(x, kWidth),
                              .slots = sorted.slots.data(),
                              .weights = rows_of(weights, kTopK),
                              .shared = rows_of(shared, kWidth),
                              .shared_gate = rows_of(gates, 1),
                              .scale = 0.3F,
                              .residual = view<const float>(y, kWidth),
                              .y = view<float>(y, kWidth)});
    return y;
  }

  ExpertIds experts;
  std::vector<float> weights;
  std::vector<float> shared;
  std::vector<float> gates;
  std::vector<float> residual;
};

TEST_P(ExpertsTest, CombineEqualsItsTwinAndDoesNotDependOnTheBatch) {
  constexpr std::int64_t kRows = 23;
  CombinedBatch batch(kRows);
  const auto whole = batch.run(*GetParam(), 0, kRows);
  const auto expected = batch.run(kernels::reference_backend(), 0, kRows);
  for (std::size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(whole[i], expected[i], 1e-5F) << i;
  for (std::int64_t row = 0; row < kRows; ++row) {
    testing::expect_rows(batch.run(*GetParam(), row, 1), whole, row, CombinedBatch::kWidth);
  }
}

TEST_P(ExpertsTest, AGateInTurnWithUpIsLimited) {
  constexpr std::int64_t kWidth = 37;
  for (const auto* backend : {GetParam(), &kernels::reference_backend()}) {
    auto x = testing::random_floats(5 * 2 * kWidth, 8, 3.0F);
    WorkerPool pool(2);
    Stream stream(*backend, pool);
    std::vector<float> y(5 * kWidth, NAN);
    kernels::gated_activation(stream, {.x = view<const float>(x, 2 * kWidth),
                                       .activation = kernels::Activation::kQuickGelu,
                                       .y = view<float>(y, kWidth),
                                       .interleaved = true,
                                       .limit = 2.0F,
                                       .up_added = 1.0F});
    for (std::size_t i = 0; i < y.size(); ++i) {
      const double gate = std::min(2.0, static_cast<double>(x[2 * i]));
      const double up = std::clamp(static_cast<double>(x[2 * i + 1]), -2.0, 2.0);
      ASSERT_NEAR(y[i], gate / (1.0 + std::exp(-1.702 * gate)) * (up + 1.0), 1e-5) << i;
    }
  }
}

}  // namespace
}  // namespace lmtp
