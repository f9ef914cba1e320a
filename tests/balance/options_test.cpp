#include <gtest/gtest.h>

#include <utility>

#include "lmtp/balance/remote_models.h"

namespace lmtp::balance {
namespace {

TEST(BalanceOptions, ThatCannotBeMeantEndTheProgramByName) {
  const auto make = [](int BalanceOptions::*option, int value) {
    BalanceOptions options;
    options.workers = {{"127.0.0.1", 1}};
    options.*option = value;
    const RemoteModels models(std::move(options));
  };
  EXPECT_DEATH(make(&BalanceOptions::health_interval_ms, 0), "health_interval_ms > 0");
  EXPECT_DEATH(make(&BalanceOptions::silence_timeout_ms, 1999), "silence_timeout_ms >= ");
  EXPECT_DEATH(make(&BalanceOptions::worker_timeout_ms, 0), "worker_timeout_ms > 0");
  EXPECT_DEATH(make(&BalanceOptions::stall_timeout_ms, -1), "stall_timeout_ms >= 0");
  EXPECT_DEATH(make(&BalanceOptions::shun_ms, -1), "shun_ms >= 0");
}

}  // namespace
}  // namespace lmtp::balance
