// When the service manager is told that the engines go on.
#include "lmtp-serve/watchdog.h"

#include <gtest/gtest.h>

#include <string>

namespace lmtp::tools {
namespace {

registry::ModelStatus model(const std::string& name, int num_running, std::int64_t num_steps) {
  registry::ModelStatus status;
  status.state = registry::ModelState::kReady;
  status.description.name = name;
  status.stats.num_running = num_running;
  status.stats.num_steps = num_steps;
  return status;
}

TEST(EngineProgress, IdleEnginesNeedNoSteps) {
  EngineProgress engines;
  EXPECT_TRUE(engines.goes_on({}));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(engines.goes_on({model("a", 0, 7)}));
}

TEST(EngineProgress, AnEngineWithRequestsTakesSteps) {
  EngineProgress engines;
  EXPECT_TRUE(engines.goes_on({model("a", 1, 7)}));  // they may have come just now
  EXPECT_FALSE(engines.goes_on({model("a", 1, 7)}));
  EXPECT_FALSE(engines.goes_on({model("a", 2, 7)}));
  EXPECT_TRUE(engines.goes_on({model("a", 2, 8)}));
  EXPECT_TRUE(engines.goes_on({model("a", 0, 8)}));
  EXPECT_TRUE(engines.goes_on({model("a", 1, 8)}));
}

TEST(EngineProgress, WaitingRequestsCount) {
  EngineProgress engines;
  registry::ModelStatus waiting = model("a", 0, 7);
  waiting.stats.num_waiting = 1;
  EXPECT_TRUE(engines.goes_on({waiting}));
  EXPECT_FALSE(engines.goes_on({waiting}));
}

TEST(EngineProgress, OneThatStandsStillIsEnough) {
  EngineProgress engines;
  EXPECT_TRUE(engines.goes_on({model("a", 1, 1), model("b", 1, 1)}));
  EXPECT_FALSE(engines.goes_on({model("a", 1, 1), model("b", 1, 2)}));
}

TEST(EngineProgress, AModelThatIsBeingLoadedHasNoSteps) {
  EngineProgress engines;
  registry::ModelStatus loading = model("a", 0, 0);
  loading.state = registry::ModelState::kLoading;
  loading.stats.num_waiting = 3;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(engines.goes_on({loading}));
}

TEST(EngineProgress, EnginesBehindABalancerAreItsOwnMatter) {
  EngineProgress engines;
  registry::ModelStatus balanced = model("a", 1, 7);
  balanced.workers.push_back({"n1:8081", "ready", 1, 0, 5});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(engines.goes_on({balanced}));
}

}  // namespace
}  // namespace lmtp::tools
