#include "kernels/philox.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lmtp {
namespace {

using Words = kernels::PhiloxWords;

// From the authors' own file of known answers (Random123, kat_vectors).
TEST(PhiloxTest, KnownAnswers) {
  EXPECT_EQ(kernels::philox4x32({{0, 0, 0, 0}}, {{0, 0}}),
            (Words{{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}));
  EXPECT_EQ(kernels::philox4x32({{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
                                {{0xffffffff, 0xffffffff}}),
            (Words{{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}));
  EXPECT_EQ(kernels::philox4x32({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
                                {{0xa4093822, 0x299f31d0}}),
            (Words{{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}));
}

TEST(PhiloxTest, UniformNumbersFillTheUnitInterval) {
  constexpr int kCount = 20000;
  constexpr int kBins = 20;
  int bins[kBins] = {};
  for (int position = 0; position < kCount; ++position) {
    const double number = kernels::uniform(7, static_cast<std::uint64_t>(position));
    ASSERT_GE(number, 0.0);
    ASSERT_LT(number, 1.0);
    ++bins[static_cast<int>(number * kBins)];
  }
  constexpr double kExpected = static_cast<double>(kCount) / kBins;
  double chi_squared = 0.0;
  for (const int count : bins) chi_squared += std::pow(count - kExpected, 2) / kExpected;
  EXPECT_LT(chi_squared, 43.8);  // 19 degrees of freedom, one in a thousand
}

TEST(PhiloxTest, SeedAndPositionBothCount) {
  EXPECT_NE(kernels::uniform(1, 2), kernels::uniform(2, 1));
  EXPECT_NE(kernels::uniform(1, 2), kernels::uniform(1, 3));
  EXPECT_NE(kernels::uniform(1, 2), kernels::uniform(std::uint64_t{1} << 32 | 1, 2));
  EXPECT_NE(kernels::uniform(1, 2), kernels::uniform(1, std::uint64_t{1} << 32 | 2));
}

}  // namespace
}  // namespace lmtp
