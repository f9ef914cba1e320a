// Whose turn it is, and that every share has room.
#include "lmtp/base/turn_queue.h"

#include <gtest/gtest.h>

#include <future>
#include <string>
#include <thread>

#include "lmtp/base/turn_worker.h"

namespace lmtp {
namespace {

std::string pop_all(TurnQueue<char>& queue) {
  std::string all;
  while (const auto item = queue.pop()) all += *item;
  return all;
}

TEST(TurnQueue, SharesTakeTurnsAndKeepTheirOrder) {
  TurnQueue<char> queue(10, 10);
  for (const char item : {'a', 'b', 'c'}) EXPECT_TRUE(queue.push(1, char{item}));
  for (const char item : {'x', 'y'}) EXPECT_TRUE(queue.push(2, char{item}));
  EXPECT_TRUE(queue.push(3, '-'));
  EXPECT_EQ(pop_all(queue), "ax-byc");
  EXPECT_TRUE(queue.empty());
}

// One that always has a next job does not keep the second job of another waiting.
TEST(TurnQueue, WhoHasHadATurnIsBehindThoseThatHaveNot) {
  TurnQueue<char> queue(10, 10);
  EXPECT_TRUE(queue.push(1, 'a'));
  EXPECT_EQ(queue.pop(), 'a');
  for (const char item : {'x', 'y', 'z'}) EXPECT_TRUE(queue.push(2, char{item}));
  std::string all;
  for (char next = 'b'; next < 'f'; ++next) {
    EXPECT_TRUE(queue.push(1, char{next}));
    all += *queue.pop();
  }
  EXPECT_EQ(all + pop_all(queue), "xbyczde");
}

// Whoever was served before waits for the shares that were there, and for none that come later.
TEST(TurnQueue, NewSharesKeepNobodyWaiting) {
  TurnQueue<char> queue(100, 10);
  EXPECT_TRUE(queue.push(1, 'a'));
  EXPECT_EQ(queue.pop(), 'a');
  for (const ConnectionId there : {2, 3}) EXPECT_TRUE(queue.push(there, 't'));
  EXPECT_TRUE(queue.push(1, 'b'));
  std::string all;
  for (ConnectionId fresh = 4; fresh < 10; ++fresh) {
    EXPECT_TRUE(queue.push(fresh, 'n'));
    all += *queue.pop();
  }
  EXPECT_EQ(all, "ttbnnn");
}

TEST(TurnQueue, OneShareLeavesRoomForOthers) {
  TurnQueue<int> queue(4, 3);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(queue.push(1, int{i}));
  EXPECT_FALSE(queue.push(1, 3));
  EXPECT_EQ(queue.size_of(1), 3U);
  EXPECT_TRUE(queue.push(2, 4));
  EXPECT_FALSE(queue.has_room(3)) << "it is full";
  EXPECT_EQ(queue.pop(), 0);
  EXPECT_FALSE(queue.push(1, 3) && queue.push(1, 3)) << "one place is free";
  EXPECT_EQ(queue.size(), 4U);
}

TEST(TurnQueue, WhatMayNotBeTakenStays) {
  TurnQueue<char> queue(10, 10);
  for (const char item : {'a', 'b'}) EXPECT_TRUE(queue.push(1, char{item}));
  EXPECT_TRUE(queue.push(2, 'x'));
  EXPECT_EQ(queue.pop_if([](ConnectionId share) { return share == 2; }), 'x');
  EXPECT_EQ(queue.pop_if([](ConnectionId share) { return share == 2; }), std::nullopt);
  queue.erase(1, 'a');
  queue.erase(1, '?');
  queue.erase(7, 'a');
  EXPECT_EQ(queue.size(), 1U);
  EXPECT_EQ(pop_all(queue), "b");
  EXPECT_TRUE(queue.push(1, 'c'));
  queue.erase(1, 'c');
  EXPECT_TRUE(queue.empty());
}

TEST(TurnWorker, HandsBackWhatWaitsAtItsEnd) {
  TurnWorker worker(10, 10);
  EXPECT_FALSE(worker.submit(1, [] {})) << "it does not run";
  worker.start();
  std::promise<void> begun;
  std::promise<void> gate;
  EXPECT_TRUE(worker.submit(1, [&] {
    begun.set_value();
    gate.get_future().wait();
  }));
  begun.get_future().wait();
  std::string done;
  for (const char name : {'a', 'b'}) {
    EXPECT_TRUE(worker.submit(1, [&done, name] { done += name; }));
  }
  EXPECT_TRUE(worker.submit(2, [&done] { done += 'x'; }));
  std::thread opens([&] { gate.set_value(); });
  for (const TurnWorker::Job& dropped : worker.stop()) dropped();
  opens.join();
  EXPECT_EQ(done.size(), 3U) << "each is done, or handed back";
  EXPECT_FALSE(worker.submit(1, [] {}));
}

}  // namespace
}  // namespace lmtp
