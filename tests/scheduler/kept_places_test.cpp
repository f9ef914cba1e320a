// A stream that goes on with one that has just ended is not put behind those that came meanwhile.
#include "lmtp/scheduler/kept_places.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "lmtp/scheduler/scheduler.h"
#include "scheduler_driver.h"
#include "small_cases.h"

namespace lmtp::scheduler {
namespace {

using namespace std::chrono_literals;
using testing::counting;
using testing::SchedulerDriver;

const KeptPlaces::Clock::time_point kStart = KeptPlaces::Clock::time_point(1h);

TEST(KeptPlacesTest, IsOfItsConnectionAdapterAndTokensForATime) {
  const auto tokens = counting(0, 40);
  KeptPlaces places;
  const auto keep = [&] { places.keep(1, 0, tokens, kStart); };
  EXPECT_FALSE(places.take(1, 0, counting(0, 50), kStart)) << "there is none";
  keep();
  EXPECT_FALSE(places.take(2, 0, counting(0, 50), kStart)) << "another connection";
  EXPECT_FALSE(places.take(1, 3, counting(0, 50), kStart)) << "another namespace";
  EXPECT_FALSE(places.take(1, 0, counting(0, 39), kStart)) << "not all of its tokens";
  EXPECT_FALSE(places.take(1, 0, counting(1, 50), kStart)) << "other tokens";
  EXPECT_FALSE(places.take(1, 0, counting(0, 50), kStart + 51ms)) << "too late";
  EXPECT_TRUE(places.take(1, 0, counting(0, 50), kStart + 50ms));
  EXPECT_FALSE(places.take(1, 0, counting(0, 50), kStart)) << "it was taken";
  keep();
  keep();
  EXPECT_TRUE(places.take(1, 0, tokens, kStart)) << "nothing was added to it";
  EXPECT_TRUE(places.take(1, 0, counting(0, 50), kStart)) << "of two that are alike";
  places.keep(1, 0, counting(0, 3), kStart);
  EXPECT_TRUE(places.take(1, 0, counting(0, 4), kStart)) << "a short one";
}

TEST(KeptPlacesTest, TheOldestGoes) {
  KeptPlaces places;
  constexpr int kMore = 10;
  const auto count = static_cast<int>(KeptPlaces::kPlacesMax) + kMore;
  for (int i = 0; i < count; ++i) places.keep(1, 0, counting(i, 5), kStart);
  for (int i = 0; i < count; ++i) {
    EXPECT_EQ(places.take(1, 0, counting(i, 6), kStart), i >= kMore) << i;
  }
}

// Two sequences may run: one goes on, the other has ended; others have come meanwhile.
class KeptPlacesOrder : public ::testing::Test {
 protected:
  KeptPlacesOrder() : driver_(testing::small_agent(), options()) {}
  static SchedulerOptions options() {
    SchedulerOptions options = testing::small_options();
    options.batch.max_sequences = 2;
    return options;
  }
  StreamKey generate(StreamId id, std::vector<TokenId> prompt, int max_tokens,
                     ConnectionId connection, KeptPlaces::Clock::time_point arrival) {
    auto sequence = std::make_unique<Sequence>();
    sequence->key = {connection, id};
    sequence->arrival = arrival;
    sequence->num_prompt = static_cast<int>(prompt.size());
    sequence->tokens = std::move(prompt);
    sequence->params.max_tokens = max_tokens;
    return driver_.add(std::move(sequence));
  }
  // Streams of others that wait, and the first chunk of a program, which has ended at kStart.
  void run_first_chunk() {
    generate(1, counting(500, 8), 60, 9, kStart);
    chunk_ = generate(1, prompt_, 4, 1, kStart);
    ASSERT_TRUE(driver_.step());
    for (ConnectionId other = 2; other < 6; ++other) {
      others_.push_back(generate(1, counting(100 * static_cast<int>(other), 8), 4, other, kStart));
    }
    driver_.scheduler().set_time(kStart);
    while (!driver_.outcome(chunk_).done) ASSERT_TRUE(driver_.step());
  }
  std::vector<TokenId> continued() {
    std::vector<TokenId> tokens = prompt_;
    const auto& drawn = driver_.outcome(chunk_).tokens;
    tokens.insert(tokens.end(), drawn.begin(), drawn.end());
    tokens.push_back(3);
    return tokens;
  }
  int num_others_done() {
    return static_cast<int>(std::ranges::count_if(
        others_, [this](StreamKey key) { return driver_.outcome(key).done; }));
  }
  void finish(StreamKey key) {
    while (!driver_.outcome(key).done) ASSERT_TRUE(driver_.step());
  }

  SchedulerDriver driver_;
  const std::vector<TokenId> prompt_ = counting(0, 20);
  StreamKey chunk_;
  std::vector<StreamKey> others_;
};

TEST_F(KeptPlacesOrder, WhoComesBackInTimeIsNext) {
  run_first_chunk();
  const StreamKey next = generate(2, continued(), 4, 1, kStart + 50ms);
  EXPECT_EQ(driver_.scheduler().waiting_order().front(), next);
  finish(next);
  EXPECT_EQ(num_others_done(), 0);
  driver_.run();
}

TEST_F(KeptPlacesOrder, WhoComesLaterWaitsBehindOthers) {
  run_first_chunk();
  const StreamKey next = generate(2, continued(), 4, 1, kStart + 51ms);
  finish(next);
  EXPECT_GT(num_others_done(), 0);
  driver_.run();
}

TEST_F(KeptPlacesOrder, OnePlaceIsForOneStream) {
  run_first_chunk();
  const StreamKey next = generate(2, continued(), 4, 1, kStart);
  const StreamKey again = generate(3, continued(), 4, 1, kStart);
  finish(next);
  EXPECT_EQ(num_others_done(), 0);
  finish(again);
  EXPECT_GT(num_others_done(), 0);
  driver_.run();
}

// It begins as its parent does, which came too late.
TEST_F(KeptPlacesOrder, AForkHasNone) {
  run_first_chunk();
  generate(2, continued(), 4, 1, kStart + 1h);
  ASSERT_TRUE(driver_.scheduler().fork({1, 2}, {1, 3}, {}));
  const auto order = driver_.scheduler().waiting_order();
  EXPECT_EQ(std::ranges::count(order, StreamKey{1, 3}), 1);
  EXPECT_NE(order.front(), (StreamKey{1, 3}));
  driver_.run();
}

TEST_F(KeptPlacesOrder, AnotherPromptHasNone) {
  run_first_chunk();
  const StreamKey other = generate(2, counting(1, 30), 4, 1, kStart);
  finish(other);
  EXPECT_GT(num_others_done(), 0);
  driver_.run();
}

}  // namespace
}  // namespace lmtp::scheduler
