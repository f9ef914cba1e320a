// Conversions of E4M3, against torch's float8_e4m3fn (tests/goldens/make_e4m3.py).
#include "kernels/e4m3.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "lmtp/base/json.h"
#include "source_dir.h"

namespace lmtp::kernels {
namespace {

Json golden() {
  auto json = read_json_file(testing::source_dir() + "/tests/goldens/e4m3.json");
  EXPECT_TRUE(json.ok());
  return *std::move(json);
}

TEST(E4M3Test, EveryCodeIsTorchsNumber) {
  const auto numbers = golden().at("numbers").get<std::vector<std::uint32_t>>();
  ASSERT_EQ(numbers.size(), 256U);
  for (std::uint32_t code = 0; code < 256; ++code) {
    const auto expected = std::bit_cast<float>(numbers[code]);
    const float number = widen_e4m3(code);
    ASSERT_EQ(std::isnan(number), std::isnan(expected)) << code;
    if (std::isnan(expected)) continue;
    EXPECT_EQ(std::bit_cast<std::uint32_t>(number), numbers[code]) << code;
    EXPECT_EQ(round_to_e4m3(number), code);
  }
}

TEST(E4M3Test, NumbersAreRoundedAsTorchDoes) {
  const auto rounded =
      golden().at("rounded").get<std::vector<std::pair<std::uint32_t, std::uint32_t>>>();
  ASSERT_GT(rounded.size(), 2000U);
  for (const auto& [bits, code] : rounded) {
    EXPECT_EQ(round_to_e4m3(std::bit_cast<float>(bits)), code) << std::bit_cast<float>(bits);
  }
}

TEST(E4M3Test, WhatIsTooLargeBecomesTheLargestAndOnlyNaNIsNaN) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float large : {448.5F, 464.5F, 480.0F, 1e6F, 3e38F, kInfinity}) {
    EXPECT_EQ(widen_e4m3(round_to_e4m3(large)), 448.0F) << large;
    EXPECT_EQ(widen_e4m3(round_to_e4m3(-large)), -448.0F) << large;
  }
  for (const float nan : {std::numeric_limits<float>::quiet_NaN(), std::bit_cast<float>(~0U)}) {
    EXPECT_EQ(round_to_e4m3(nan) & 0x7FU, 0x7FU);
  }
}

}  // namespace
}  // namespace lmtp::kernels
