// Tickets: each counts once, for a while, and no key takes another one's place.
#include "access/tickets.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace lmtp::server {
namespace {

std::shared_ptr<Account> account(const std::string& name) {
  return std::make_shared<Account>(name, 1, AccountLimits());
}

TEST(Tickets, CountOnce) {
  Tickets tickets;
  const Tickets::Time now{};
  const auto alice = account("alice");
  const auto ticket = tickets.issue(alice, now);
  ASSERT_TRUE(ticket);
  EXPECT_EQ(ticket->size(), 32u);
  EXPECT_NE(*tickets.issue(alice, now), *ticket);
  EXPECT_EQ(tickets.take("", now), nullptr);
  EXPECT_EQ(tickets.take(ticket->substr(1), now), nullptr);
  EXPECT_EQ(tickets.take(*ticket, now), alice);
  EXPECT_EQ(tickets.take(*ticket, now), nullptr);
}

TEST(Tickets, CountForAWhile) {
  Tickets tickets;
  const Tickets::Time now{};
  const auto alice = account("alice");
  const auto in_time = tickets.issue(alice, now);
  const auto too_old = tickets.issue(alice, now);
  EXPECT_EQ(tickets.take(*in_time, now + kTicketTime), alice);
  EXPECT_EQ(tickets.take(*too_old, now + kTicketTime + std::chrono::milliseconds(1)), nullptr);
  ASSERT_TRUE(tickets.issue(alice, now));
  ASSERT_TRUE(tickets.issue(alice, now + 2 * kTicketTime));
  EXPECT_EQ(tickets.size(), 1u) << "what is too old is not kept";
}

TEST(Tickets, OfAKeyThatIsGoneCountForNothing) {
  Tickets tickets;
  const Tickets::Time now{};
  const auto alice = account("alice");
  const auto ticket = tickets.issue(alice, now);
  alice->revoke();
  EXPECT_EQ(tickets.take(*ticket, now), nullptr);
}

TEST(Tickets, AKeyTakesThePlacesOfItsOwn) {
  Tickets tickets;
  const Tickets::Time now{};
  const auto alice = account("alice");
  const auto bob = account("bob");
  const auto of_bob = tickets.issue(bob, now);
  std::vector<std::string> issued;
  for (std::size_t i = 0; i <= kTicketsOfKeyMax; ++i) {
    issued.push_back(*tickets.issue(alice, now + std::chrono::milliseconds(i)));
  }
  EXPECT_EQ(tickets.size(), kTicketsOfKeyMax + 1);
  EXPECT_EQ(tickets.take(issued.front(), now), nullptr) << "the oldest";
  EXPECT_EQ(tickets.take(issued[1], now), alice);
  EXPECT_EQ(tickets.take(issued.back(), now), alice);
  EXPECT_EQ(tickets.take(*of_bob, now), bob);
}

TEST(Tickets, WithoutKeysNoneIsKept) {
  Tickets tickets;
  EXPECT_TRUE(tickets.issue(nullptr, {}));
  EXPECT_EQ(tickets.size(), 0u);
}

}  // namespace
}  // namespace lmtp::server
