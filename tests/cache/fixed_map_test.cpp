#include "lmtp/cache/fixed_map.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <unordered_map>

namespace lmtp::cache {
namespace {

// Hashes of which many share a bucket, and the map is often full.
TEST(FixedMap, HoldsWhatAnyOtherMapHolds) {
  constexpr std::size_t kCapacity = 40;
  FixedMap<int> map(kCapacity);
  std::unordered_map<std::uint64_t, int> expected;
  std::mt19937 random(1);
  int num_full = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t hash = (random() % 16) | (std::uint64_t{random() % 6} << 40);
    int* const found = map.find(hash);
    const auto wanted = expected.find(hash);
    ASSERT_EQ(found != nullptr, wanted != expected.end()) << i;
    if (found != nullptr) {
      ASSERT_EQ(*found, wanted->second) << i;
    }
    if (found != nullptr && random() % 3 != 0) {
      map.erase(hash);
      expected.erase(hash);
    } else if (found != nullptr || expected.size() < kCapacity) {
      map.find_or_add(hash) = expected[hash] = i;
    }
    ASSERT_EQ(map.size(), expected.size());
    num_full += expected.size() == kCapacity ? 1 : 0;
  }
  EXPECT_GT(num_full, 100);
}

TEST(FixedMap, ANewValueIsEmptyWhereAnotherWasErased) {
  FixedMap<int> map(1);
  map.find_or_add(7) = 3;
  map.erase(7);
  EXPECT_EQ(map.find(7), nullptr);
  EXPECT_EQ(map.find_or_add(9), 0);
}

TEST(FixedMapDeath, TakesNoMoreThanItWasMadeFor) {
  FixedMap<int> map(1);
  map.find_or_add(7);
  EXPECT_DEATH(map.find_or_add(8), "size_ < capacity_");
}

}  // namespace
}  // namespace lmtp::cache
