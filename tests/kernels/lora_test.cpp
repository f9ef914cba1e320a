// The op lora, and an activation of its own, over all instruction sets.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernel_support.h"
#include "kernels/activation.h"
#include "kernels/lora.h"

namespace lmtp {
namespace {

using kernels::Stream;
using kernels::WorkerPool;

std::string name_of(const ::testing::TestParamInfo<const kernels::Backend*>& info) {
  return info.param->name;
}

class LoraTest : public testing::BackendTest {};

INSTANTIATE_TEST_SUITE_P(Backends, LoraTest, ::testing::ValuesIn(kernels::cpu_backends()), name_of);

// An adapter of random elements for three linear layers: none; one delta; two, of other ranks.
class RandomAdapter {
 public:
  RandomAdapter(std::int64_t n, std::int64_t k, int rank, kernels::ElementType type, unsigned seed)
      : type_(type) {
    std::int64_t size = 0;
    const auto add = [&](int r, std::int64_t first, std::int64_t count) {
      const std::int64_t b = size + kernels::lora_size(r, k);
      deltas_.push_back({size, b, r, static_cast<int>(first), static_cast<int>(count)});
      size = b + kernels::lora_size(r, count);
    };
    add(rank, 0, n);
    add(rank + 1, 0, n / 3);
    add(1, n / 3, n - n / 3);
    first_delta_ = {0, 0, 1, 3};
    // In pieces of three chunks, apart and in falling order.
    const std::int64_t num_pieces = (size + kPiece - 1) / kPiece;
    auto values = testing::random_floats(static_cast<std::size_t>(num_pieces * kPiece), seed, 0.5F);
    for (const kernels::LoraDelta& delta : deltas_) {
      const std::int64_t num_ranks = kernels::lora_rank_groups(delta.rank) * kernels::kLoraRanks;
      for (std::int64_t r = delta.rank; r < num_ranks; ++r) clear_rank(delta, r, values);
    }
    memory_.resize(static_cast<std::size_t>(num_pieces * 2 * kPiece));
    for (std::int64_t p = 0; p < num_pieces; ++p) {
      float* piece = memory_.data() + (num_pieces - 1 - p) * 2 * kPiece;
      const float* from = values.data() + p * kPiece;
      if (type == kernels::ElementType::kF32) {
        std::copy_n(from, kPiece, piece);
      } else {
        for (std::int64_t i = 0; i < kPiece; ++i) {
          std::memcpy(reinterpret_cast<std::uint16_t*>(piece) + i,
                      reinterpret_cast<const char*>(from + i) + 2, 2);
        }
      }
      pieces_.push_back(piece);
    }
  }

  kernels::LoraAdapter view() const {
    return {pieces_.data(), kPiece, type_, deltas_.data(), first_delta_.data()};
  }

 private:
  // Of B: it has no such rank.
  static void clear_rank(const kernels::LoraDelta& delta, std::int64_t rank,
                         std::vector<float>& values) {
    const std::int64_t num_groups = kernels::lora_rank_groups(delta.rank);
    for (std::int64_t out = 0; out < kernels::lora_lane_groups(delta.num_outputs); ++out) {
      const std::int64_t chunk = out * num_groups + rank / kernels::kLoraRanks;
      const std::int64_t first =
          delta.b + chunk * kernels::kLoraChunk + rank % kernels::kLoraRanks * kernels::kLoraLanes;
      std::fill_n(values.begin() + first, kernels::kLoraLanes, 0.0F);
    }
  }

  static constexpr std::int64_t kPiece = std::int64_t{3} * kernels::kLoraChunk;
  const kernels::ElementType type_;
  std::vector<float> memory_;
  std::vector<const void*> pieces_;
  std::vector<kernels::LoraDelta> deltas_;
  std::vector<std::int32_t> first_delta_;
};

TEST_P(LoraTest, EqualsItsTwinIsLocalToTheRowAndLeavesOthersAlone) {
  constexpr std::int64_t kRows = 13;
  struct LoraShape {
    std::int64_t n;
    std::int64_t k;
    int rank;
  };
  for (const LoraShape& shape :
       {LoraShape{7, 5, 1}, LoraShape{36, 36, 4}, LoraShape{300, 52, 8}, LoraShape{33, 1030, 13}}) {
    const std::int64_t n = shape.n;
    const std::int64_t k = shape.k;
    std::vector<RandomAdapter> adapters;
    adapters.emplace_back(n, k, shape.rank, kernels::ElementType::kF32, 1);
    adapters.emplace_back(n, k, 2, kernels::ElementType::kBF16, 2);
    std::vector<kernels::LoraAdapter> views = {adapters[0].view(), adapters[1].view()};
    auto x = testing::random_floats(static_cast<std::size_t>(kRows * k), 3);
    const auto before = testing::random_floats(static_cast<std::size_t>(kRows * n), 4);
    const auto run = [&](const kernels::Backend& backend, int linear,
                         std::vector<kernels::LoraRow> rows) {
      WorkerPool pool(2);
      Stream stream(backend, pool);
      auto y = before;
      kernels::lora(stream,
                    {.x = testing::view<const float>(x, k),
                     .linear = linear,
                     .rows = {rows.data(), static_cast<std::int64_t>(rows.size()), views.data(), 2},
                     .y = testing::view<float>(y, n)});
      return y;
    };
    // Seven rows of one, in any order, three of the other; three have none.
    const std::vector<kernels::LoraRow> rows = {{9, 0}, {0, 0}, {3, 0}, {12, 0}, {4, 0},
                                                {6, 0}, {7, 0}, {2, 1}, {8, 1},  {11, 1}};
    testing::expect_same_bits(run(*GetParam(), 0, rows), before);
    for (const int linear : {1, 2}) {
      const auto expected = run(kernels::reference_backend(), linear, rows);
      const auto whole = run(*GetParam(), linear, rows);
      for (std::size_t i = 0; i < whole.size(); ++i) {
        ASSERT_NEAR(whole[i], expected[i], 2e-5F * (1.0F + std::fabs(expected[i])) * 30.0F) << i;
      }
      for (const kernels::LoraRow& row : rows) {
        auto alone = before;
        const auto of_one = run(*GetParam(), linear, {row});
        for (std::int64_t r = 0; r < kRows; ++r) {
          const auto at = r * n;
          const auto& same = r == row.row ? whole : alone;
          ASSERT_TRUE(
              std::equal(of_one.begin() + at, of_one.begin() + at + n, same.begin() + at,
                         [](float a, float b) { return testing::bits(a) == testing::bits(b); }))
              << row.row << " " << r;
        }
      }
      for (const std::int64_t row : {1, 5, 10}) {
        const auto at = row * n;
        ASSERT_TRUE(std::equal(whole.begin() + at, whole.begin() + at + n, before.begin() + at));
      }
      EXPECT_NE(whole, before);
    }
  }
}

// So a step with adapters gives rows without one what any step does.
TEST_P(LoraTest, ActivationBehindALinearHasTheBitsOfOneWithin) {
  constexpr std::int64_t kN = 70;
  constexpr std::int64_t kK = 45;
  auto x = testing::random_floats(std::size_t{9} * kK, 5, 2.0F);
  const auto weight = testing::random_floats(std::size_t{kN} * kK, 6);
  const auto bias = testing::random_floats(kN, 7);
  WorkerPool pool(2);
  for (const auto type :
       {kernels::WeightType::kF32, kernels::WeightType::kBF16, kernels::WeightType::kInt8}) {
    std::vector<std::uint32_t> panels(static_cast<std::size_t>(kernels::packed_size(kN, kK, type)) +
                                      16);
    void* aligned = panels.data();
    std::size_t space = panels.size() * sizeof(std::uint32_t);
    std::align(64, space - 64, aligned, space);
    std::vector<float> scales(static_cast<std::size_t>(kernels::padded_columns(kN)));
    std::vector<std::int32_t> sums(scales.size());
    kernels::pack_linear(pool, {.data = weight.data(), .n = kN, .k = kK},
                         {aligned, type, scales.data(), sums.data()});
    for (const kernels::Activation activation : testing::all_activations()) {
      for (const std::int64_t rows : {1, 9}) {
        Stream stream(*GetParam(), pool);
        const auto run = [&](kernels::Activation within) {
          std::vector<float> y(static_cast<std::size_t>(rows * kN));
          kernels::PackedLinear packed{aligned, kN, kK, type};
          packed.scales = scales.data();
          packed.sums = sums.data();
          kernels::linear(stream, {.x = kernels::make_matrix<const float>(x.data(), rows, kK),
                                   .weight = packed,
                                   .bias = bias.data(),
                                   .activation = within,
                                   .y = testing::view<float>(y, kN)});
          if (within == kernels::Activation::kNone) {
            kernels::activate(stream, testing::view<float>(y, kN), activation);
          }
          return y;
        };
        testing::expect_same_bits(run(kernels::Activation::kNone), run(activation));
      }
    }
  }
}

}  // namespace
}  // namespace lmtp
