// What the kernel tests share: random matrices, and a stream over each backend.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/activation.h"
#include "kernels/backend.h"
#include "kernels/stream.h"
#include "kernels/worker_pool.h"

namespace lmtp::testing {

inline std::vector<float> random_floats(std::size_t count, unsigned seed, float scale = 1.0F) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0F, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

template <typename T>
kernels::Matrix<T> view(std::vector<std::remove_const_t<T>>& values, std::int64_t columns) {
  return kernels::make_matrix<T>(values.data(), static_cast<std::int64_t>(values.size()) / columns,
                                 columns);
}

// One of every kind, with limits and numbers that random inputs meet.
inline std::vector<kernels::Activation> all_activations() {
  std::vector<kernels::Activation> all;
  for (int kind = 0; kind < kernels::Activation::kNumKinds; ++kind) {
    all.emplace_back(static_cast<kernels::Activation::Kind>(kind), 0.7F);
    all.back().above = 0.6F;
    all.back().below = 0.9F;
    all.back().slope = 0.4F;
    all.back().near = -1e-6F;
  }
  return all;
}

inline std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }

inline void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_EQ(bits(a[i]), bits(b[i])) << "element " << i;
}

// The rows of `whole` from `first` on, each n wide, begin with `part`, to the bit.
inline void expect_rows(const std::vector<float>& part, const std::vector<float>& whole,
                        std::int64_t first, std::int64_t n) {
  for (std::size_t i = 0; i < part.size(); ++i) {
    ASSERT_EQ(bits(part[i]), bits(whole[static_cast<std::size_t>(first * n) + i]))
        << "row " << i / static_cast<std::size_t>(n) << " column "
        << i % static_cast<std::size_t>(n);
  }
}

// Defined by each test that cases shared between backends are linked into.
std::vector<const kernels::Backend*> backends_under_test();

// A test for each set of kernels.
class BackendTest : public ::testing::TestWithParam<const kernels::Backend*> {};

inline std::string backend_name(const ::testing::TestParamInfo<const kernels::Backend*>& info) {
  return info.param->name;
}

// For steps that begin at an odd position, moves the tables apart, in falling order and with
// invalid block numbers between them. Returns where they begin.
inline std::vector<std::int32_t> spread_tables(int first_position,
                                               const std::vector<std::int32_t>& offsets,
                                               std::vector<std::int32_t>& tables) {
  std::vector<std::int32_t> starts(offsets.begin(), offsets.end() - 1);
  if (first_position % 2 == 0) return starts;
  const std::size_t stride = tables.size() + 3;
  std::vector<std::int32_t> spread(starts.size() * stride, -1);
  for (std::size_t s = 0; s < starts.size(); ++s) {
    const std::size_t to = (starts.size() - 1 - s) * stride;
    std::copy(tables.begin() + offsets[s], tables.begin() + offsets[s + 1],
              spread.begin() + static_cast<std::ptrdiff_t>(to));
    starts[s] = static_cast<std::int32_t>(to);
  }
  tables = std::move(spread);
  return starts;
}

}  // namespace lmtp::testing
