#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/random.h"
#include "lmtp/model/weights.h"

namespace lmtp {
namespace {

using model::TensorSpec;

const TensorSpec kSpec{"h.0.mlp.c_fc.weight", {300, 701}, {.mean = 0.5F, .deviation = 0.02F}};

std::vector<float> fill(std::uint64_t seed, const TensorSpec& spec) {
  std::vector<float> values(static_cast<std::size_t>(spec.num_elements()));
  kernels::fill_random({.tensor = model::random_tensor(seed, spec, kernels::ElementType::kF32),
                        .count = spec.num_elements(),
                        .to = values.data()});
  return values;
}

TEST(RandomWeightsTest, AnElementIsAFunctionOfSeedNameAndIndex) {
  const auto whole = fill(1, kSpec);
  const auto source = model::make_random_source(1, kernels::ElementType::kF32);
  const auto tensor = source->tensor(kSpec);
  ASSERT_TRUE(tensor.ok());
  std::vector<float> read(whole.size());
  constexpr std::size_t kFirst = 12345;
  constexpr std::size_t kFirstBytes = kFirst * sizeof(float);
  ASSERT_TRUE(tensor->read(0, kFirstBytes, read.data()).ok());
  ASSERT_TRUE(
      tensor->read(kFirstBytes, whole.size() * sizeof(float) - kFirstBytes, read.data() + kFirst)
          .ok());
  EXPECT_EQ(read, whole);
  std::vector<float> part(100);
  kernels::fill_random({.tensor = model::random_tensor(1, kSpec, kernels::ElementType::kF32),
                        .first = 777,
                        .count = 100,
                        .to = part.data()});
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 777));
  EXPECT_NE(fill(2, kSpec), whole);
  TensorSpec other = kSpec;
  other.name = "h.1.mlp.c_fc.weight";
  EXPECT_NE(fill(1, other), whole);
}

TEST(RandomWeightsTest, TheyAreNearlyNormal) {
  const auto values = fill(3, kSpec);
  double sum = 0.0;
  double squares = 0.0;
  int beyond_one = 0;
  for (const float value : values) {
    const double off = (static_cast<double>(value) - 0.5) / 0.02;
    sum += off;
    squares += off * off;
    beyond_one += std::fabs(off) > 1.0 ? 1 : 0;
  }
  const auto count = static_cast<double>(values.size());
  EXPECT_NEAR(sum / count, 0.0, 0.01);
  EXPECT_NEAR(squares / count, 1.0, 0.01);
  EXPECT_NEAR(beyond_one / count, 0.3173, 0.02);
}

// Changing the generator changes every random model: benchmarks then compare different weights.
TEST(RandomWeightsTest, TheNumbersStandFast) {
  const auto values = fill(0, {"wte.weight", {4}, {.mean = 0.0F, .deviation = 1.0F}});
  EXPECT_EQ(values, fill(0, {"wte.weight", {2, 2}, {.mean = 0.0F, .deviation = 1.0F}}));
  EXPECT_EQ(fill(0, {"ln.weight", {3}, {.mean = 1.0F}}), std::vector<float>(3, 1.0F));
  const std::vector<float> expected = {0.299467F, 0.91108692F, -1.084884F, 1.8583287F};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_FLOAT_EQ(values[i], expected[i]);
}

}  // namespace
}  // namespace lmtp
