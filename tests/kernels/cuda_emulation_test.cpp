// The emulation itself: what a kernel computes on it, and that it finds what is wrong.
#include <gtest/gtest.h>
#include <device_primitives.cuh>

#include <cmath>
#include <set>
#include <vector>

#include "kernel_support.h"
#include "narrow_floats.h"

namespace lmtp {
namespace {

namespace cuda = kernels::cuda;
using cuda::BF16;
using cuda::F16;
using cuda::Words4;

class CudaEmulationTest : public ::testing::Test {
 protected:
  void TearDown() override { cuda_emulation::set_order(0); }

  // One block in every order of a few.
  template <typename Kernel>
  static void for_orders(const Kernel& check) {
    for (const unsigned seed : {0U, 1U, 2U, 3U}) {
      cuda_emulation::set_order(seed);
      check();
    }
  }
};

using CudaEmulationDeathTest = CudaEmulationTest;

void run_block(int num_threads, std::size_t shared_bytes, const std::function<void()>& thread) {
  cuda_emulation::run({.num_threads = num_threads, .shared_bytes = shared_bytes}, [&] {
    cuda::grid_dependency_wait();
    thread();
  });
}

TEST_F(CudaEmulationTest, EveryThreadOfEveryBlockRunsOnce) {
  for_orders([] {
    std::multiset<std::vector<int>> seen;
    cuda_emulation::run({.grid = {3, 2, 2}, .num_threads = 64}, [&] {
      cuda::grid_dependency_wait();
      const cuda::Grid block = cuda::block_index();
      seen.insert({block.x, block.y, block.z, cuda::thread_index()});
      EXPECT_EQ(cuda::num_threads(), 64);
      EXPECT_EQ(cuda::warp_index() * 32 + cuda::lane_index(), cuda::thread_index());
    });
    EXPECT_EQ(seen.size(), 3U * 2 * 2 * 64);
    EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), seen.size());
  });
}

TEST_F(CudaEmulationTest, ABarrierLetsABlockReadWhatItWrote) {
  for_orders([] {
    run_block(128, 128 * sizeof(int), [] {
      auto* shared = cuda::shared_memory<int>();
      for (int round = 0; round < 3; ++round) {
        shared[cuda::thread_index()] = round * 1000 + cuda::thread_index();
        cuda::block_barrier();
        const int other = 127 - cuda::thread_index();
        EXPECT_EQ(shared[other], round * 1000 + other);
        cuda::block_barrier();
      }
    });
  });
}

// Without the barrier it shows in some order: what makes the test above one that can fail.
TEST_F(CudaEmulationTest, AMissingBarrierShows) {
  int num_stale = 0;
  run_block(64, 64 * sizeof(float), [&] {
    auto* shared = cuda::shared_memory<float>();
    const float seen = shared[63 - cuda::thread_index()];
    num_stale += std::isnan(seen) ? 1 : 0;
    shared[cuda::thread_index()] = 1.0F;
  });
  EXPECT_GT(num_stale, 0);
}

// What tests of bits over orders find: sums whose order is that of the threads.
TEST_F(CudaEmulationTest, ASumInTheOrderOfThreadsShows) {
  const auto values = testing::random_floats(128, 3);
  std::set<std::uint32_t> sums;
  for_orders([&] {
    float sum = 0.0F;
    run_block(128, 0, [&] { sum += values[static_cast<std::size_t>(cuda::thread_index())]; });
    sums.insert(testing::bits(sum));
  });
  EXPECT_GT(sums.size(), 1U);
}

TEST_F(CudaEmulationTest, LanesExchangeValues) {
  for_orders([] {
    run_block(64, 0, [] {
      const int lane = cuda::lane_index();
      const int base = cuda::warp_index() * 100;
      EXPECT_EQ(cuda::shuffle(base + lane, 7), base + 7);
      EXPECT_EQ(cuda::shuffle_xor(base + lane, 5), base + (lane ^ 5));
      EXPECT_EQ(cuda::warp_ballot(lane % 2 == 0), 0x55555555U);
      cuda::warp_barrier();
      float sum = static_cast<float>(lane);
      for (int mask = 16; mask > 0; mask /= 2) sum += cuda::shuffle_xor(sum, mask);
      EXPECT_EQ(sum, 496.0F);
    });
  });
}

template <typename T>
void check_product() {
  const auto a = testing::random_floats(256, 1);
  const auto b = testing::random_floats(128, 2);  // [16 rows][8 columns]
  const auto rounded = [](float x) {
    return cuda::widen<T>(static_cast<std::uint16_t>(cuda::round_pair<T>(x, 0.0F)));
  };
  std::vector<float> c(128, NAN);
  run_block(32, 0, [&] {
    const int g = cuda::lane_index() / 4;
    const int t = cuda::lane_index() % 4;
    const auto of_a = [&](int row, int column) {
      const auto at = static_cast<std::size_t>(row * 16 + column);
      return cuda::round_pair<T>(a[at], a[at + 1]);
    };
    const auto of_b = [&](int row) {
      const auto at = static_cast<std::size_t>(row * 8 + g);
      return cuda::round_pair<T>(b[at], b[at + 8]);
    };
    const Words4 fragment = {
        {of_a(g, 2 * t), of_a(g + 8, 2 * t), of_a(g, 2 * t + 8), of_a(g + 8, 2 * t + 8)}};
    float sums[4] = {1.0F, 2.0F, 3.0F, 4.0F};
    cuda::mma_m16n8k16<T>(sums, fragment, of_b(2 * t), of_b(2 * t + 8));
    for (int i = 0; i < 4; ++i) {
      c[static_cast<std::size_t>((g + i / 2 * 8) * 8 + 2 * t + i % 2)] = sums[i];
    }
  });
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      double sum = 1.0 + row / 8 * 2 + column % 2;
      for (int k = 0; k < 16; ++k) {
        sum += static_cast<double>(rounded(a[static_cast<std::size_t>(row * 16 + k)])) *
               static_cast<double>(rounded(b[static_cast<std::size_t>(k * 8 + column)]));
      }
      ASSERT_NEAR(c[static_cast<std::size_t>(row * 8 + column)], sum, 1e-5) << row << " " << column;
    }
  }
}

TEST_F(CudaEmulationTest, AtomicsOfABlockOnOneAddressAreCounted) {
  (void)cuda_emulation::take_atomics_max();
  cuda_emulation::run({.grid = {4, 1, 1}, .num_threads = 64, .shared_bytes = 8}, [] {
    cuda::grid_dependency_wait();
    auto* shared = cuda::shared_memory<std::uint32_t>();
    if (cuda::thread_index() == 0) shared[0] = shared[1] = 0;
    cuda::block_barrier();
    cuda::atomic_add(&shared[cuda::thread_index() % 4 == 0 ? 1 : 0], 2U);
    cuda::block_barrier();
    EXPECT_EQ(shared[0], 96U);
    EXPECT_EQ(shared[1], 32U);
  });
  EXPECT_EQ(cuda_emulation::take_atomics_max(), 48);
  EXPECT_EQ(cuda_emulation::take_atomics_max(), 0);
}

TEST_F(CudaEmulationTest, AProductTakesItsOperandsAsTheInstructionDoes) {
  for_orders(check_product<BF16>);
  for_orders(check_product<F16>);
}

TEST_F(CudaEmulationTest, HalfPrecisionIsRoundedToNearest) {
  for (std::uint32_t bits = 0; bits < 0x7C00U; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = testing::widen_f16(half);
    const float next = testing::widen_f16(static_cast<std::uint16_t>(half + 1));
    ASSERT_EQ(testing::round_to_f16(value), half);
    ASSERT_EQ(testing::round_to_f16(-value), half | 0x8000U);
    if (bits + 1 < 0x7C00U) {
      const float middle = (value + next) / 2;
      ASSERT_EQ(testing::round_to_f16(middle), half + (half & 1U));
      ASSERT_EQ(testing::round_to_f16(std::nextafter(middle, INFINITY)), half + 1U);
    }
  }
  EXPECT_EQ(testing::round_to_f16(65519.0F), 0x7BFFU);
  EXPECT_EQ(testing::round_to_f16(65520.0F), 0x7C00U);
  EXPECT_TRUE(std::isnan(testing::widen_f16(testing::round_to_f16(NAN))));
  EXPECT_EQ(testing::widen_f16(0x3C00U), 1.0F);
}

TEST_F(CudaEmulationTest, ACopyHappensWhenItIsWaitedFor) {
  alignas(16) const std::uint32_t from[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  run_block(32, 64, [&] {
    auto* shared = cuda::shared_memory<Words4>();
    const auto* source = reinterpret_cast<const Words4*>(from);
    if (cuda::thread_index() == 0) {
      cuda::copy_async(shared, source, true);
      cuda::commit_copies();
      cuda::copy_async(shared + 1, source + 1, true);
      cuda::commit_copies();
      EXPECT_NE(shared[0].words[0], 1U);
      cuda::wait_for_copies<1>();
      EXPECT_EQ(shared[0].words[3], 4U);
      EXPECT_NE(shared[1].words[0], 5U);
      cuda::copy_async(shared + 2, source, false);
      cuda::commit_copies();
      cuda::wait_for_copies<0>();
      EXPECT_EQ(shared[1].words[0], 5U);
      EXPECT_EQ(shared[2].words[1], 0U);
    }
  });
}

TEST_F(CudaEmulationDeathTest, WhatIsWrongIsSaid) {
  const auto diverged_barrier = [] {
    if (cuda::thread_index() < 40) cuda::block_barrier();
  };
  EXPECT_DEATH(run_block(64, 0, diverged_barrier), "40 threads wait at a block barrier");
  const auto inexact_sum = [] { cuda::fma_pairs<BF16>(0x3F80U, 0x3F80U, 0x4C80U); };  // 1 + 2^26
  EXPECT_DEATH(run_block(32, 0, inexact_sum), "a sum that f32 does not hold");
  const auto diverged_warp = [] {
    if (cuda::thread_index() % 2 == 0) cuda::shuffle(1, 0);
  };
  EXPECT_DEATH(run_block(32, 0, diverged_warp), "16 in a warp operation, and 16 have left");
  const auto different = [] {
    if (cuda::thread_index() % 2 == 0) {
      cuda::shuffle(1, 0);
    } else {
      cuda::warp_barrier();
    }
  };
  EXPECT_DEATH(run_block(32, 0, different), "different operations");
  const auto beyond = [] { cuda::shared_memory<int>()[16 + cuda::thread_index()] = 1; };
  EXPECT_DEATH(run_block(32, 64, beyond), "beyond its 64 bytes");
  const auto unaligned = [] {
    cuda::load(reinterpret_cast<Words4*>(cuda::shared_memory<int>() + 1));
  };
  EXPECT_DEATH(run_block(32, 64, unaligned), "not a multiple of 16");
  alignas(16) static const Words4 zero = {};
  const auto copy_beyond = [] { cuda::copy_async(cuda::shared_memory<Words4>() + 4, &zero, true); };
  EXPECT_DEATH(run_block(32, 64, copy_beyond), "not the block's shared memory");
  const auto forgotten = [] {
    cuda::copy_async(cuda::shared_memory<Words4>(), &zero, true);
    cuda::commit_copies();
  };
  EXPECT_DEATH(run_block(32, 64, forgotten), "did not wait for");
  EXPECT_DEATH(cuda_emulation::run({.num_threads = 32}, [] {}), "grid_dependency_wait");
  EXPECT_DEATH(run_block(33, 0, [] {}), "a launch of");
}

}  // namespace
}  // namespace lmtp
