#include <gtest/gtest.h>

#include "lmtp/engine/model_factory.h"

namespace lmtp::engine {
namespace {

constexpr std::int64_t kGi = std::int64_t{1} << 30;

TEST(KvBudget, IsAQuarterOfWhatIsFreeUpToALimit) {
  const MemoryNeed need{.weights_bytes = kGi, .kv_bytes_min = 1, .kv_bytes = 0};
  EXPECT_EQ(kv_budget(need, 8 * kGi, false), 2 * kGi);
  EXPECT_EQ(kv_budget(need, 100 * kGi, false), kDefaultKvBytesMax);
}

TEST(KvBudget, IsWhatOneStreamNeedsAtLeast) {
  const MemoryNeed need{.weights_bytes = kGi, .kv_bytes_min = 5 * kGi, .kv_bytes = 0};
  EXPECT_EQ(kv_budget(need, 8 * kGi, false), 5 * kGi);
  EXPECT_EQ(kv_budget(need, 5 * kGi, false), std::nullopt);
  EXPECT_EQ(kv_budget(need, 5 * kGi, true), std::nullopt);
}

TEST(KvBudget, GivesWhatIsLeftWhereNothingCanBeUnloaded) {
  const MemoryNeed need{.weights_bytes = 7 * kGi, .kv_bytes_min = kGi / 2, .kv_bytes = 0};
  EXPECT_EQ(kv_budget(need, 8 * kGi, false), std::nullopt);
  EXPECT_EQ(kv_budget(need, 8 * kGi, true), kGi);
}

TEST(KvBudget, IsWhatTheUserSays) {
  const MemoryNeed need{.weights_bytes = kGi, .kv_bytes_min = 1, .kv_bytes = 3 * kGi};
  EXPECT_EQ(kv_budget(need, 4 * kGi, false), 3 * kGi);
  EXPECT_EQ(kv_budget(need, 4 * kGi - 1, true), std::nullopt);
}

}  // namespace
}  // namespace lmtp::engine
