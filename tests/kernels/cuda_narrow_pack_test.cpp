// Weights of 8 bits and less in a device's memory: what packing makes of floats and of codes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cuda/linear_narrow.h"
#include "device_under_test.h"
#include "kernel_support.h"
#include "kernels/embedding.h"
#include "narrow_floats.h"
#include "narrow_weights.h"

namespace lmtp {
namespace {

using testing::device_under_test;
namespace cuda = kernels::cuda;
using kernels::CodeType;
using kernels::ElementType;
using kernels::Grouping;
using kernels::Stream;
using kernels::WeightType;
using kernels::WorkerPool;
using testing::Codes;
using testing::DeviceWeight;
using testing::pack_codes;
using testing::pack_floats;
using testing::Problem;

// All elements, by the op that looks up rows.
std::vector<float> elements_of(const kernels::Backend& backend,
                               const kernels::PackedLinear& weight) {
  WorkerPool pool(1);
  Stream stream(backend, pool);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(weight.n));
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i);
  std::vector<float> y(static_cast<std::size_t>(weight.n * weight.k), NAN);
  kernels::embedding(
      stream,
      {.ids = ids.data(), .table = weight, .scale = 1.5F, .y = testing::view<float>(y, weight.k)});
  stream.synchronize();
  return y;
}

TEST(CudaNarrowPackTest, FloatsAreRoundedAsOnTheHost) {
  // The last one in parts: packing rounds a mebibyte at a time.
  for (const Problem& problem :
       {Problem{1, 1}, Problem{37, 53}, Problem{75, 172}, Problem{75, 16390}}) {
    auto values = testing::random_floats(static_cast<std::size_t>(problem.n * problem.k), 7, 0.02F);
    std::fill_n(values.begin(), std::min<std::int64_t>(problem.k, 40), 0.0F);  // groups of zeros
    std::vector<std::uint16_t> bf16;
    std::vector<std::uint16_t> f16;
    for (const float value : values) {
      bf16.push_back(testing::round_to_bf16(value));
      f16.push_back(testing::round_to_f16(value));
    }
    const void* const data[] = {values.data(), f16.data(), bf16.data()};
    for (const WeightType type : {WeightType::kInt8, WeightType::kInt4}) {
      for (const ElementType from : {ElementType::kF32, ElementType::kF16, ElementType::kBF16}) {
        for (const auto order :
             {kernels::WeightOrder::kOutputsByInputs, kernels::WeightOrder::kInputsByOutputs}) {
          if (problem.k > 1000 && from != ElementType::kBF16) continue;
          SCOPED_TRACE(::testing::Message()
                       << "n " << problem.n << " k " << problem.k << " type "
                       << static_cast<int>(type) << " from " << static_cast<int>(from));
          const void* const source = data[static_cast<int>(from)];
          const auto on_host = testing::pack_on_host(
              type, {.data = source, .type = from, .order = order, .n = problem.n, .k = problem.k});
          const DeviceWeight weight = pack_floats(type, problem, source, from, order);
          testing::expect_same_bits(elements_of(device_under_test(), weight.packed),
                                    elements_of(kernels::cpu_backend(), on_host.weight));
        }
      }
    }
  }
}

TEST(CudaNarrowPackTest, CodesOfACheckpointAreThoseOfTheHost) {
  const Problem problem = {75, 172};
  testing::for_groupings([&](WeightType type, const Grouping& by) {
    Codes codes(problem.n, problem.k, by);
    const auto on_host = testing::pack_codes_on_host(type, problem.n, problem.k, by, codes);
    testing::expect_same_bits(
        elements_of(device_under_test(), pack_codes(type, problem, by, codes).packed),
        elements_of(kernels::cpu_backend(), on_host.weight));
  });
}

// Codes take the bits that they have in a file, and a group its scale.
TEST(CudaNarrowPackTest, WeightsStayNarrow) {
  const auto bits_of = [](WeightType type, const Grouping& by) {
    return static_cast<double>(kernels::packed_bytes(device_under_test(), type, 256, 1024, by)) *
           8 / (256 * 1024);
  };
  EXPECT_EQ(bits_of(WeightType::kInt8, {}), 8 + 32.0 / 1024);
  EXPECT_EQ(bits_of(WeightType::kInt4, {}), 4 + 16.0 / 32);
  EXPECT_EQ(bits_of(WeightType::kWidened, {CodeType::kE4M3, 128, ElementType::kBF16, false}),
            8 + 16.0 / 128);
  EXPECT_EQ(bits_of(WeightType::kWidened, {CodeType::kInt4, 128, ElementType::kF16, true}),
            4 + (16.0 + 32) / 128);
}

TEST(CudaNarrowPackTest, NoLaunchTakesMoreScratchMemoryThanTheMost) {
  for (const std::int64_t k : {1, 40, 4096, 28672}) {
    for (const std::int64_t m : {1, 64, 65, 512}) {
      const std::size_t most = cuda::narrow_scratch_bytes_max(m, k);
      for (const WeightType type : {WeightType::kInt8, WeightType::kWidened}) {
        EXPECT_LE(cuda::narrow_scratch_bytes(type, m, 152064, k), most) << m << " " << k;
      }
    }
  }
}

}  // namespace
}  // namespace lmtp
