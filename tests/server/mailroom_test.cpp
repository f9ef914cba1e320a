#include "net/mailroom.h"

#include <gtest/gtest.h>

#include <boost/asio/dispatch.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/strand.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <new>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "counted_allocations.h"

namespace lmtp::server {
namespace {

namespace asio = boost::asio;

TokenEvent token(TokenId id) {
  TokenEvent event;
  event.token = id;
  event.top_logprobs = TopLogprobs{{id, -1.0F}};
  return event;
}

// Of one connection: keeps the tokens that come.
class Tokens : public Mail, public std::enable_shared_from_this<Tokens> {
 public:
  Tokens(asio::io_context& io, std::size_t num_wanted)
      : strand_(asio::make_strand(io)), num_wanted_(num_wanted) {
    taken.reserve(num_wanted);
  }

  void collect() override {
    if (num_failures > 0) {
      --num_failures;
      throw std::bad_alloc();
    }
    asio::dispatch(strand_, [self = shared_from_this()] {
      self->take([&](std::span<StreamEvent> events) {
        ++self->num_calls;
        for (const StreamEvent& event : events) {
          self->taken.push_back(std::get<TokenEvent>(event).token);
        }
        if (self->taken.size() == self->num_wanted_) self->done.set_value();
      });
    });
  }

  void bring(Mailroom& mailroom, TokenId id) {
    StreamEvent event = token(id);
    add({&event, 1});
    mailroom.put(shared_from_this());
  }

  std::vector<TokenId> taken;
  std::promise<void> done;
  int num_failures = 0;
  int num_calls = 0;

 private:
  asio::strand<asio::io_context::executor_type> strand_;
  const std::size_t num_wanted_;
};

std::vector<std::shared_ptr<Tokens>> make_mail(asio::io_context& io, int count,
                                               std::size_t num_wanted) {
  std::vector<std::shared_ptr<Tokens>> all;
  for (int i = 0; i < count; ++i) all.push_back(std::make_shared<Tokens>(io, num_wanted));
  return all;
}

TEST(Mailroom, OneWakeUpHandsOutTheMailOfAllConnections) {
  asio::io_context io;
  Mailroom mailroom(io, 2);
  const auto all = make_mail(io, 100, 4);
  for (int step = 0; step < 2; ++step) {
    for (const auto& mail : all) {
      mail->bring(mailroom, 2 * step);
      mail->bring(mailroom, 2 * step + 1);
    }
    EXPECT_EQ(io.poll(), 0U) << "not before the wake-up";
    io.restart();
    mailroom.wake();
    mailroom.wake();  // before a drain task was at work
    EXPECT_EQ(mailroom.num_wakeups(), step + 1);
    io.run();
    io.restart();
  }
  for (const auto& mail : all) {
    EXPECT_EQ(mail->taken, (std::vector<TokenId>{0, 1, 2, 3}));
    EXPECT_EQ(mail->num_calls, 4) << "each is a step's";
  }
  mailroom.wake();
  EXPECT_EQ(mailroom.num_wakeups(), 2) << "there is nothing";
}

// Takes as long as the test wants.
class SlowMail : public Mail {
 public:
  void collect() override {
    begun.set_value();
    go.get_future().wait();
  }
  std::promise<void> begun;
  std::promise<void> go;
};

TEST(Mailroom, OneThatTakesItsTimeHoldsUpNoOther) {
  asio::io_context io;
  auto guard = asio::make_work_guard(io);
  Mailroom mailroom(io, 2);
  std::thread threads[] = {std::thread([&] { io.run(); }), std::thread([&] { io.run(); })};
  const auto slow = std::make_shared<SlowMail>();
  StreamEvent event = token(1);
  slow->add({&event, 1});
  mailroom.put(slow);
  mailroom.wake();
  slow->begun.get_future().wait();
  const auto other = std::make_shared<Tokens>(io, 1);
  other->bring(mailroom, 7);
  mailroom.wake();
  EXPECT_EQ(other->done.get_future().wait_for(std::chrono::minutes(1)), std::future_status::ready);
  slow->go.set_value();
  guard.reset();
  for (std::thread& thread : threads) thread.join();
}

TEST(Mailroom, OtherHandlersOfAThreadGetTheirTurn) {
  asio::io_context io;
  Mailroom mailroom(io, 1);
  const auto all = make_mail(io, 100, 1);
  for (const auto& mail : all) mail->bring(mailroom, 1);
  mailroom.wake();
  std::size_t num_taken = 0;
  asio::post(io, [&] {
    for (const auto& mail : all) num_taken += mail->taken.size();
  });
  io.run();
  EXPECT_GT(num_taken, 0U);
  EXPECT_LT(num_taken, 50U);
}

TEST(Mailroom, WhatCouldNotBeHandedOutWaitsAgain) {
  asio::io_context io;
  Mailroom mailroom(io, 1);
  const auto all = make_mail(io, 3, 1);
  all[1]->num_failures = 3;
  for (const auto& mail : all) mail->bring(mailroom, 1);
  mailroom.wake();
  io.run();
  for (const auto& mail : all) EXPECT_EQ(mail->taken.size(), 1U);
  EXPECT_EQ(mailroom.num_wakeups(), 1);
}

// Mail that nobody has taken goes with the mailroom, a drain task that never came with the
// io_context.
TEST(Mailroom, MayEndBeforeItsMailIsTaken) {
  std::weak_ptr<Tokens> left;
  {
    std::unique_ptr<Mailroom> mailroom;
    asio::io_context io;
    mailroom = std::make_unique<Mailroom>(io, 1);
    const auto all = make_mail(io, 2, 1);
    left = all[0];
    for (const auto& mail : all) mail->bring(*mailroom, 1);
    mailroom->wake();
    mailroom->clear();
  }
  EXPECT_TRUE(left.expired());
}

TEST(Mailroom, AStepTakesNoMemoryOfTheThreadThatDelivers) {
  asio::io_context io;
  Mailroom mailroom(io, 2);
  const auto all = make_mail(io, 32, 100);
  std::int64_t in_last = 0;
  for (int step = 0; step < 100; ++step) {
    const std::int64_t before = lmtp::testing::num_allocations;
    for (const auto& mail : all) mail->bring(mailroom, step);
    mailroom.wake();
    in_last = lmtp::testing::num_allocations - before;
    if (step == 0) {
      EXPECT_GT(in_last, 0);
    }
    io.run();
    io.restart();
  }
  EXPECT_EQ(in_last, 0);
}

TEST(Mailroom, SeveralThreadsKeepTheOrderOfEachConnection) {
  constexpr int kNumThreads = 3;
  constexpr int kNumSteps = 2000;
  asio::io_context io;
  auto work = asio::make_work_guard(io);
  Mailroom mailroom(io, kNumThreads);
  const auto all = make_mail(io, 40, kNumSteps);
  std::vector<std::thread> threads;
  for (int i = 0; i < kNumThreads; ++i) threads.emplace_back([&io] { io.run(); });
  for (int step = 0; step < kNumSteps; ++step) {
    for (const auto& mail : all) mail->bring(mailroom, step);
    mailroom.wake();
  }
  for (const auto& mail : all) {
    EXPECT_EQ(mail->done.get_future().wait_for(std::chrono::minutes(1)), std::future_status::ready);
  }
  work.reset();
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(mailroom.num_wakeups(), kNumSteps);
  for (const auto& mail : all) {
    for (int step = 0; step < kNumSteps; ++step) {
      ASSERT_EQ(mail->taken.at(static_cast<std::size_t>(step)), step);
    }
  }
}

}  // namespace
}  // namespace lmtp::server
