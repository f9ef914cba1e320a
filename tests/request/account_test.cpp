// What an account may have, on a clock of the test's own.
#include "lmtp/request/account.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>

namespace lmtp {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

AccountLimits limits(int max_streams, std::int64_t tokens_per_minute) {
  AccountLimits out;
  out.max_streams = max_streams;
  out.tokens_per_minute = tokens_per_minute;
  return out;
}

TEST(Account, StreamsAtATime) {
  Account account("a", 1, limits(2, 0));
  EXPECT_TRUE(account.begin(10));
  EXPECT_TRUE(account.begin(10));
  const auto denied = account.begin(10);
  ASSERT_FALSE(denied);
  EXPECT_EQ(denied.error().code, ErrorCode::kOverloaded);
  EXPECT_NE(denied.error().message.find("2 streams of the key 'a'"), std::string::npos);
  EXPECT_EQ(denied.error().wait_ms, 0);
  account.ended(1);
  EXPECT_TRUE(account.begin(10));
  account.undo(10);
  EXPECT_TRUE(account.begin(10));
  account.ended(1);
  account.ended(-1);  // its end could not be delivered
  EXPECT_FALSE(account.begin(10));
}

TEST(Account, APartOfARequestNeedsNoTokensLeftAndItsOwnCount) {
  Account account("a", 1, limits(2, 6000));
  EXPECT_TRUE(account.begin(7000));
  EXPECT_TRUE(account.begin_part(0));
  EXPECT_FALSE(account.begin_part(0)) << "two are under way";
  account.ended(1);
  EXPECT_FALSE(account.begin(1));
  EXPECT_TRUE(account.begin_part(500));
  account.ended(2);
  const auto denied = account.begin(1);
  ASSERT_FALSE(denied);
  EXPECT_GT(denied.error().wait_ms, 14'000) << "1,500 too many";
}

TEST(Account, TokensAMinuteAreADebtThatIsWaitedFor) {
  Account account("a", 1, limits(0, 6000));  // 100 a second
  const Account::Clock::time_point start = Account::Clock::now();
  EXPECT_TRUE(account.begin(5999, start));
  EXPECT_TRUE(account.begin(500, start)) << "one is left";
  account.generated(200);  // 699 too many
  const auto denied = account.begin(1, start);
  ASSERT_FALSE(denied);
  EXPECT_GE(denied.error().wait_ms, 6900);
  EXPECT_LE(denied.error().wait_ms, 7000);
  EXPECT_NE(denied.error().message.find("6000 tokens a minute; retry in 7 s"), std::string::npos)
      << denied.error().message;
  EXPECT_FALSE(account.begin(1, start + milliseconds(denied.error().wait_ms - 100)));
  EXPECT_TRUE(account.begin(1, start + milliseconds(denied.error().wait_ms + 1)));
  EXPECT_FALSE(account.begin(1, start + milliseconds(denied.error().wait_ms + 1)));
  // However long it rests, it has those of one minute.
  EXPECT_TRUE(account.begin(6001, start + seconds(100'000)));
  EXPECT_FALSE(account.begin(1, start + seconds(100'000)));
  // What did not begin costs nothing.
  account.undo(6001);
  EXPECT_TRUE(account.begin(1, start + seconds(100'000)));
}

TEST(Account, NewLimitsHoldAtOnce) {
  Account account("a", 1, {});
  const auto now = Account::Clock::now();
  EXPECT_TRUE(account.begin(1'000'000, now));
  account.set(limits(0, 60));
  EXPECT_TRUE(account.begin(60, now)) << "before there was nothing to be counted";
  EXPECT_FALSE(account.begin(1, now));
  account.set(limits(0, 6000));
  EXPECT_FALSE(account.begin(1, now)) << "a debt is not forgotten";
  account.set({});
  EXPECT_TRUE(account.begin(std::numeric_limits<int>::max(), now));
  EXPECT_FALSE(account.is_revoked());
  account.revoke();
  EXPECT_TRUE(account.is_revoked());
}

TEST(Account, ModelsByPattern) {
  Account any("a", 1, {});
  EXPECT_TRUE(any.may_use("x/y"));
  AccountLimits some;
  some.models = {"demo", "org/*", "/srv/[ab]", "../odd"};
  const Account account("a", 1, some);
  for (const char* name : {"demo", "org/x", "org/x/y", "/srv/a", "../odd", "org/..x", "org/x.."}) {
    EXPECT_TRUE(account.may_use(name)) << name;
  }
  for (const char* name : {"", "Demo", "demo2", "org", "/srv/c", "org/../secret", "org/..",
                           "org/x/../../secret", "..", "../other"}) {
    EXPECT_FALSE(account.may_use(name)) << name;
  }
  EXPECT_EQ(account.models_text(), "'demo', 'org/*', '/srv/[ab]', '../odd'");
  some.models->clear();
  EXPECT_FALSE(Account("a", 1, some).may_use("demo"));
}

}  // namespace
}  // namespace lmtp
