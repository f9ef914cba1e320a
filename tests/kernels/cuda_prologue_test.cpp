// What comes before a linear's product: the same bits as the op by itself, for every number of rows
// and every layout of rounded inputs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "device_under_test.h"
#include "kernel_support.h"
#include "kernels/activation.h"
#include "kernels/linear.h"
#include "kernels/memory.h"
#include "kernels/norm.h"

namespace lmtp {
namespace {

using kernels::Matrix;
using kernels::Memory;
using kernels::Stream;
using kernels::WeightType;
using testing::device_under_test;

// A norm with and without a bias, and where its x is; a gate from elsewhere, and from where gate
// and up are. With groups and a residual no launch takes it along.
enum class Kind { kLayerNorm, kNoBias, kInPlace, kRmsNorm, kGroups, kResidual, kGate, kFirstHalf };

bool is_gate(Kind kind) { return kind == Kind::kGate || kind == Kind::kFirstHalf; }
bool is_in_place(Kind kind) { return kind == Kind::kInPlace || kind == Kind::kFirstHalf; }
bool is_taken_along(Kind kind) { return kind != Kind::kGroups && kind != Kind::kResidual; }

// A product behind a norm or a gate; rows of the same numbers, whatever their count.
class Product {
 public:
  Product(WeightType type, std::int64_t n, std::int64_t k)
      : type_(type),
        n_(n),
        k_(k),
        weight_(testing::random_floats(static_cast<std::size_t>(n * k), 1, 0.1F)),
        norm_weight_(testing::random_floats(static_cast<std::size_t>(k), 2)),
        norm_bias_(testing::random_floats(static_cast<std::size_t>(k), 3)),
        packed_(Memory::allocate(device_under_test(),
                                 kernels::packed_bytes(device_under_test(), type, n, k))) {
    kernels::pack(stream_, {.data = weight_.data(), .n = n, .k = k},
                  {.panels = packed_.data(), .type = type});
    stream_.synchronize();
  }

  // [rows, n], by one op or by two.
  std::vector<float> run(Kind kind, std::int64_t rows, bool together) {
    const std::int64_t width = is_gate(kind) ? 2 * k_ : k_;
    auto input = testing::random_floats(static_cast<std::size_t>(rows * width), 4);
    std::vector<float> apart(static_cast<std::size_t>(rows * k_), NAN);
    std::vector<float> y(static_cast<std::size_t>(rows * n_), NAN);
    const auto from = testing::view<float>(input, width);
    const auto x = is_in_place(kind) ? from.slice_columns(0, k_) : testing::view<float>(apart, k_);
    kernels::LinearArgs args{.x = x,
                             .weight = {packed_.data(), n_, k_, type_},
                             .y = testing::view<float>(y, n_),
                             .prologue = prologue(kind, from, x)};
    if (!together) kernels::run_prologue(stream_, std::exchange(args.prologue, {}));
    kernels::linear(stream_, args);
    stream_.synchronize();
    return y;
  }

 private:
  kernels::LinearPrologue prologue(Kind kind, Matrix<const float> from, Matrix<float> x) const {
    const float* weight = norm_weight_.data();
    const float* bias = norm_bias_.data();
    switch (kind) {
      case Kind::kLayerNorm:
      case Kind::kInPlace:
        return kernels::LayerNormArgs{
            .x = from, .weight = weight, .bias = bias, .epsilon = 1e-5F, .y = x};
      case Kind::kNoBias:
        return kernels::LayerNormArgs{.x = from, .weight = weight, .epsilon = 1e-5F, .y = x};
      case Kind::kRmsNorm:
        return kernels::RmsNormArgs{.x = from, .weight = weight, .epsilon = 1e-5F, .y = x};
      case Kind::kGroups:
        return kernels::RmsNormArgs{
            .x = from, .weight = weight, .groups = 2, .epsilon = 1e-5F, .y = x};
      case Kind::kResidual:
        return kernels::RmsNormArgs{
            .x = from, .weight = weight, .epsilon = 1e-5F, .residual = from, .y = x};
      case Kind::kGate:
        return kernels::GatedActivationArgs{.x = from, .y = x};
      case Kind::kFirstHalf:
        return kernels::GatedActivationArgs{
            .x = from, .activation = kernels::Activation::kGeluTanh, .y = x};
    }
    return {};
  }

  WeightType type_;
  std::int64_t n_;
  std::int64_t k_;
  kernels::WorkerPool pool_{1};
  Stream stream_{device_under_test(), pool_};
  std::vector<float> weight_;
  std::vector<float> norm_weight_;
  std::vector<float> norm_bias_;
  Memory packed_;
};

class CudaPrologueTest : public ::testing::TestWithParam<Kind> {
 protected:
  void TearDown() override { testing::set_wgmma(false); }
};

INSTANTIATE_TEST_SUITE_P(Kinds, CudaPrologueTest,
                         ::testing::Values(Kind::kLayerNorm, Kind::kNoBias, Kind::kInPlace,
                                           Kind::kRmsNorm, Kind::kGroups, Kind::kResidual,
                                           Kind::kGate, Kind::kFirstHalf));

// Inputs that are whole stages, of several vectors a thread too, and such that are not; rows that
// are streamed, that go by tiles and, of so many outputs that each multiprocessor has some, by warp
// groups of 32, 64 and 128 rows.
TEST_P(CudaPrologueTest, HasTheBitsOfTheOpByItself) {
  struct PrologueShape {
    WeightType type;
    std::int64_t n;
    std::int64_t k;
  };
  const std::int64_t wide = std::int64_t{128} * testing::num_multiprocessors();
  for (const PrologueShape& shape :
       {PrologueShape{WeightType::kBF16, 40, 128}, PrologueShape{WeightType::kF16, wide, 64},
        PrologueShape{WeightType::kBF16, 16, 1088}, PrologueShape{WeightType::kBF16, 16, 80},
        PrologueShape{WeightType::kF32, 16, 64}, PrologueShape{WeightType::kInt8, 16, 64}}) {
    Product product(shape.type, shape.n, shape.k);
    for (const bool by_groups : {false, true}) {
      if (by_groups && !testing::set_wgmma(true)) continue;
      for (const std::int64_t rows : {8, 9, 20, 40, 130}) {
        SCOPED_TRACE(::testing::Message() << "n " << shape.n << " k " << shape.k << " rows " << rows
                                          << (by_groups ? " by warp groups" : ""));
        EXPECT_EQ(product.run(GetParam(), rows, true), product.run(GetParam(), rows, false));
      }
    }
    testing::set_wgmma(false);
  }
}

// One launch less than by itself where x is rounded apart.
TEST_P(CudaPrologueTest, RunsInTheLaunchThatRounds) {
  Product product(WeightType::kBF16, 40, 128);
  for (const std::int64_t rows : {1, 8, 9, 16, 70}) {
    (void)testing::take_num_launches();
    (void)product.run(GetParam(), rows, false);
    const int apart = testing::take_num_launches();
    if (apart == 0) GTEST_SKIP() << "a real device does not count";
    (void)product.run(GetParam(), rows, true);
    const bool along = rows > 8 && is_taken_along(GetParam());
    EXPECT_EQ(apart - testing::take_num_launches(), along ? 1 : 0) << rows;
  }
}

}  // namespace
}  // namespace lmtp
