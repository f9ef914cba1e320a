#include "placement.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace lmtp::balance {
namespace {

TEST(Placement, TheWorkerThatKnowsThePrefixGetsTheStream) {
  const std::vector<Candidate> candidates = {{3, 0, 0}, {5, 3000, 30}, {9, 0, 0}};
  EXPECT_EQ(choose(candidates, {.known = 5, .num_tokens = 100}), 1U);
}

TEST(Placement, ItLosesThePrefixWhenItHasTooMuchToDo) {
  const std::vector<Candidate> candidates = {{0, 100'000, 9}, {1, 50'000, 9}, {2, 60'000, 9}};
  EXPECT_EQ(choose(candidates, {.known = 0, .num_tokens = 100}), 1U);
  EXPECT_EQ(choose(candidates, {.balance_factor = 2.0, .known = 0, .num_tokens = 100}), 0U);
}

TEST(Placement, AWorkerThatIsNotThereKnowsNothing) {
  const std::vector<Candidate> candidates = {{0, 500, 9}, {2, 400, 9}};
  EXPECT_EQ(choose(candidates, {.known = 1, .num_tokens = 100}), 1U);
}

TEST(Placement, TheFewestStreamsOrTokensByPolicy) {
  const std::vector<Candidate> candidates = {{0, 500, 1}, {1, 400, 2}};
  EXPECT_EQ(choose(candidates, {.policy = Policy::kLeastConn, .known = 1}), 0U);
  EXPECT_EQ(choose(candidates, {.policy = Policy::kPrefix}), 1U);
}

TEST(Placement, EqualsGetTheirTurnByChance) {
  const std::vector<Candidate> candidates = {{0, 7, 1}, {1, 7, 1}, {2, 7, 1}};
  for (const Policy policy : {Policy::kPrefix, Policy::kLeastConn, Policy::kRandom}) {
    std::set<std::size_t> chosen;
    for (std::uint64_t chance = 0; chance < 3; ++chance) {
      chosen.insert(choose(candidates, {.policy = policy, .chance = chance}));
    }
    EXPECT_EQ(chosen.size(), 3U);
  }
}

}  // namespace
}  // namespace lmtp::balance
