// Which sequences run where adapters share the blocks with keys and values.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "scheduler_driver.h"
#include "small_cases.h"

namespace lmtp::scheduler {
namespace {

using testing::fake_adapter;
using testing::FakeAgent;
using testing::SchedulerDriver;

constexpr int kBlocks = 40;

std::vector<TokenId> prompt_of(int first, int length) {
  std::vector<TokenId> prompt;
  for (int i = 0; i < length; ++i) prompt.push_back((first + i * 7) % testing::kSmallVocab);
  return prompt;
}

class AdaptersTest : public ::testing::Test {
 protected:
  static SchedulerOptions options() {
    SchedulerOptions options = testing::small_options();
    options.batch.max_adapters = 2;
    return options;
  }

  StreamKey generate(StreamId id, const std::shared_ptr<const Adapter>& adapter, int max_tokens = 4,
                     int length = 20) {
    return driver_.generate(id, prompt_of(static_cast<int>(id), length), max_tokens, 1, {},
                            adapter);
  }
  void expect_alone(StreamKey key, const std::shared_ptr<const Adapter>& adapter,
                    int max_tokens = 4, int length = 20) {
    EXPECT_EQ(driver_.outcome(key).tokens,
              FakeAgent::expected_tokens(prompt_of(static_cast<int>(key.stream), length),
                                         max_tokens, testing::kSmallVocab, -1, adapter.get()))
        << key.stream;
  }
  const cache::BlockPool& pool() { return driver_.scheduler().pool(); }
  const SchedulerCounters& counters() { return driver_.scheduler().counters(); }

  SchedulerDriver driver_{testing::small_agent(kBlocks), options()};
};

TEST_F(AdaptersTest, OneIsLoadedOnceAndStaysUntilItsBlocksAreNeeded) {
  const auto adapter = fake_adapter("a", 6);
  const StreamKey first = generate(1, adapter);
  driver_.step();
  EXPECT_EQ(pool().num_adapter(), 6);
  EXPECT_EQ(pool().num_idle(), 0);
  driver_.run();
  EXPECT_EQ(pool().num_idle(), 6);
  const StreamKey second = generate(2, adapter);
  driver_.run();
  EXPECT_EQ(counters().num_adapter_loads, 1);
  expect_alone(first, adapter);
  expect_alone(second, adapter);
  // Streams that need all blocks, with those of their prefixes.
  generate(3, nullptr, 1, 255);
  for (StreamId id = 4; id < 8; ++id) generate(id, nullptr, 90, 64);
  driver_.run();
  EXPECT_EQ(pool().num_adapter(), 0);
  const int num_preempted = static_cast<int>(counters().num_preemptions);
  const StreamKey again = generate(9, adapter);
  driver_.run();
  EXPECT_EQ(counters().num_preemptions, num_preempted);
  EXPECT_EQ(counters().num_adapter_loads, 2);
  expect_alone(again, adapter);
}

TEST_F(AdaptersTest, AnIdleOneGoesBeforeARunningStreamIsPreempted) {
  const auto idle = fake_adapter("idle", 10);
  generate(1, idle);
  driver_.run();
  ASSERT_EQ(pool().num_idle(), 10);
  // Two streams that grow to 34 of the 39 blocks.
  const StreamKey a = generate(2, nullptr, 150, 100);
  const StreamKey b = generate(3, nullptr, 150, 100);
  driver_.run();
  EXPECT_EQ(counters().num_preemptions, 0);
  EXPECT_EQ(pool().num_adapter(), 0);
  expect_alone(a, nullptr, 150, 100);
  expect_alone(b, nullptr, 150, 100);
}

TEST_F(AdaptersTest, MoreThanMayRunWaitAndOthersPassThem) {
  const auto a = fake_adapter("a", 1);
  const auto b = fake_adapter("b", 1);
  const auto c = fake_adapter("c", 1);
  generate(1, a, 60);
  generate(2, b, 30);
  driver_.step();
  const StreamKey third = generate(3, c);
  const StreamKey fourth = generate(4, a);
  const StreamKey fifth = generate(5, nullptr);
  for (int i = 0; i < 10; ++i) driver_.step();
  EXPECT_FALSE(driver_.outcome(third).done);
  EXPECT_TRUE(driver_.outcome(third).tokens.empty());
  EXPECT_TRUE(driver_.outcome(fourth).done);
  EXPECT_TRUE(driver_.outcome(fifth).done);
  EXPECT_EQ(driver_.scheduler().waiting_adapters(), "c");
  EXPECT_EQ(driver_.scheduler().running_adapters(), "a,b");
  driver_.run();
  expect_alone(third, c);
}

// Streams of two adapters keep coming; one of a third does not wait for ever.
TEST_F(AdaptersTest, OneThatHasWaitedForLongIsNext) {
  const std::shared_ptr<const Adapter> busy[] = {fake_adapter("a", 1), fake_adapter("b", 1)};
  StreamId id = 10;
  generate(++id, busy[0], 30);
  generate(++id, busy[1], 30);
  driver_.step();
  const auto patient = fake_adapter("c", 1);
  const StreamKey waits = generate(1, patient);
  int num_steps = 0;
  while (!driver_.outcome(waits).done && num_steps < 2000) {
    if (num_steps % 10 == 0) generate(++id, busy[num_steps / 10 % 2], 30);
    driver_.step();
    ++num_steps;
  }
  EXPECT_TRUE(driver_.outcome(waits).done);
  EXPECT_GT(num_steps, 200);
  EXPECT_LT(num_steps, 330);
  driver_.run();
  expect_alone(waits, patient);
}

TEST_F(AdaptersTest, AnAdapterOfTheSameNameSharesNothingWithTheOldOne) {
  auto adapter = fake_adapter("a", 2);
  generate(1, adapter, 4, 40);
  driver_.run();
  const auto num_cached = counters().num_cached_tokens;
  adapter = fake_adapter("a", 2);
  driver_.generate(2, prompt_of(1, 40), 4, 1, {}, adapter);
  driver_.run();
  EXPECT_EQ(counters().num_cached_tokens, num_cached);
  driver_.generate(3, prompt_of(1, 40), 4, 1, {}, adapter);
  driver_.run();
  EXPECT_GT(counters().num_cached_tokens, num_cached);
}

class AdapterPlacesTest : public ::testing::Test {
 protected:
  static Sequence sequence_with(SequenceId id, const std::shared_ptr<const Adapter>& adapter) {
    Sequence sequence;
    sequence.id = id;
    sequence.weights_of_adapter = adapter;
    return sequence;
  }
  // As an admission.
  bool start(Sequence& sequence) {
    places_.use(sequence);
    return places_.load(sequence, plan_);
  }

  cache::BlockPool pool_{12};
  cache::PrefixCache cache_{pool_};
  AdapterPlaces places_{2, cache_};
  StepPlan plan_;
};

TEST_F(AdapterPlacesTest, WeightsAreLoadedOnceAndStayWhileNothingNeedsTheirBlocks) {
  const auto adapter = fake_adapter("one", 3);
  Sequence first = sequence_with(1, adapter);
  Sequence second = sequence_with(2, adapter);
  places_.join(first);
  places_.join(second);
  EXPECT_EQ(first.adapter, 1);
  EXPECT_EQ(second.adapter, 1);
  EXPECT_EQ(places_.num_blocks_to_take(first), 3);
  EXPECT_TRUE(start(first));
  EXPECT_EQ(places_.num_blocks_to_take(second), 0);
  EXPECT_FALSE(start(second));
  places_.leave(first);
  places_.leave(first);
  EXPECT_EQ(pool_.num_idle(), 0);
  places_.leave(second);
  EXPECT_EQ(pool_.num_idle(), 3);
  EXPECT_FALSE(start(first)) << "they are still there";
  EXPECT_EQ(pool_.num_idle(), 0);
  places_.leave(first);
  for (int i = 0; i < 9; ++i) EXPECT_NE(cache_.allocate(), kNoBlock);
  EXPECT_EQ(pool_.num_adapter(), 0) << "all of them go for one block";
}

TEST_F(AdapterPlacesTest, AsManyDifferentOnesRunAsMay) {
  Sequence sequences[] = {sequence_with(1, fake_adapter("a", 1)),
                          sequence_with(2, fake_adapter("b", 1)),
                          sequence_with(3, fake_adapter("c", 1)), sequence_with(4, nullptr)};
  for (Sequence& sequence : sequences) places_.join(sequence);
  start(sequences[0]);
  EXPECT_TRUE(places_.has_place(sequences[2]));
  start(sequences[1]);
  EXPECT_FALSE(places_.has_place(sequences[2]));
  EXPECT_TRUE(places_.has_place(sequences[1]));
  EXPECT_TRUE(places_.has_place(sequences[3]));
  Sequence* const running[] = {&sequences[0], &sequences[1]};
  EXPECT_TRUE(places_.has_place(sequences[2], {running, 1}));
  EXPECT_EQ(places_.num_blocks_freed_by(running, 0), 2);
  EXPECT_EQ(places_.num_blocks_freed_by(running, sequences[0].adapter), 1);
  EXPECT_EQ(places_.names(running), "a,b");
  places_.check(running);
}

TEST_F(AdapterPlacesTest, LaterOnesWaitForOneThatHasWaitedForLong) {
  Sequence sequences[] = {sequence_with(1, fake_adapter("a", 1)),
                          sequence_with(2, fake_adapter("b", 1)),
                          sequence_with(3, fake_adapter("c", 1)), sequence_with(4, nullptr)};
  for (Sequence& sequence : sequences) places_.join(sequence);
  start(sequences[0]);
  start(sequences[1]);
  Sequence later = sequence_with(5, sequences[0].weights_of_adapter);
  places_.join(later);
  Sequence* const waiting[] = {&later, &sequences[2]};
  places_.find_starved(waiting, 256);
  EXPECT_FALSE(places_.waits_for_starved(later));
  places_.find_starved(waiting, 257);
  EXPECT_TRUE(places_.waits_for_starved(later));
  EXPECT_FALSE(places_.waits_for_starved(sequences[2]));
  EXPECT_FALSE(places_.waits_for_starved(sequences[3])) << "it has no adapter";
}

}  // namespace
}  // namespace lmtp::scheduler
