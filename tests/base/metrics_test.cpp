#include "lmtp/base/metrics.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <thread>

namespace lmtp {
namespace {

constexpr Buckets kDecades(0.5, {1, 10, 25, 50, 1000});
static_assert(kDecades.is_valid());
static_assert(!Buckets(1.0, {4, 7}).is_valid());
static_assert(!Buckets(1.0, {0, 7}).is_valid());
static_assert(!Buckets(1.0, {}).is_valid());

std::size_t bucket_by_search(const Buckets& buckets, std::int64_t value) {
  std::size_t at = 0;
  while (at < buckets.num_bounds && value > buckets.upper[at]) ++at;
  return at;
}

TEST(Metrics, ABucketIsWhatASearchFinds) {
  constexpr Buckets kPowers(1.0, {1, 2, 4, 8, 16});
  constexpr Buckets kOne(1.0, {300});
  for (const Buckets& buckets : {kDecades, kPowers, kOne}) {
    for (std::int64_t value = 0; value < 2100; ++value) {
      ASSERT_EQ(buckets.bucket_of(value), bucket_by_search(buckets, value)) << value;
    }
    for (int bit = 10; bit < 63; ++bit) {
      ASSERT_EQ(buckets.bucket_of(std::int64_t{1} << bit), buckets.num_bounds) << bit;
    }
    EXPECT_EQ(buckets.bucket_of(std::numeric_limits<std::int64_t>::max()), buckets.num_bounds);
  }
}

TEST(Metrics, AHistogramCountsAndSums) {
  Histogram histogram(kDecades);
  for (const std::int64_t value : {-5, 0, 1, 2, 25, 26, 1001}) histogram.add(value);
  const Histogram copy = histogram;
  histogram.add(1);
  EXPECT_EQ(copy.count(0), 3U);
  EXPECT_EQ(copy.count(1), 1U);
  EXPECT_EQ(copy.count(2), 1U);
  EXPECT_EQ(copy.count(3), 1U);
  EXPECT_EQ(copy.count(4), 0U);
  EXPECT_EQ(copy.count(5), 1U);
  EXPECT_EQ(copy.count(), 7U);
  EXPECT_DOUBLE_EQ(copy.sum(), 0.5 * (1 + 2 + 25 + 26 + 1001));
  EXPECT_EQ(histogram.count(), 8U);
}

// Under ThreadSanitizer: reading is no data race, and never finds more than was added.
TEST(Metrics, AnyThreadReadsWhileOneAdds) {
  constexpr int kNumAdded = 20'000;
  Histogram histogram(kDecades);
  std::atomic<bool> done = false;
  std::thread writer([&] {
    for (int i = 0; i < kNumAdded; ++i) histogram.add(i);
    done = true;
  });
  std::uint64_t last = 0;
  while (!done) {
    const std::uint64_t now = Histogram(histogram).count();
    EXPECT_GE(now, last);
    last = now;
  }
  writer.join();
  EXPECT_EQ(histogram.count(), static_cast<std::uint64_t>(kNumAdded));
}

}  // namespace
}  // namespace lmtp
