// Groups of layers with windows: what streams hold, what is found again, and where a stream goes on
// after an edit.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "counting.h"
#include "scheduler_driver.h"

namespace lmtp::scheduler {
namespace {

using testing::counting;
using testing::FakeAgent;
using testing::FakeAgentOptions;
using testing::joined;
using testing::SchedulerDriver;

constexpr int kGroupsVocab = 1 << 20;
constexpr int kGroupsStepTokens = 64;

// 5:1, as Gemma 3: five groups of layers with a window for each one without.
constexpr std::array kFiveWindows = {512, 512, 512, 512, 512};

// has_stubs: all layers have windows.
std::unique_ptr<SchedulerDriver> make_windowed_driver(std::span<const int> windows, int num_blocks,
                                                      int context_length = 4096,
                                                      bool has_stubs = false) {
  FakeAgentOptions agent;
  agent.vocab_size = kGroupsVocab;
  agent.num_blocks = num_blocks;
  agent.kv_layout = testing::windowed_layout(windows, kGroupsStepTokens, has_stubs);
  SchedulerOptions options;
  options.vocab_size = kGroupsVocab;
  options.context_length = context_length;
  options.batch.max_tokens = kGroupsStepTokens;
  return std::make_unique<SchedulerDriver>(agent, options);
}

std::vector<TokenId> tokens_after(const std::vector<TokenId>& prompt, int count) {
  return FakeAgent::expected_tokens(prompt, count, kGroupsVocab);
}

TEST(GroupsTest, AStreamHoldsInEachGroupWhatItsWindowSees) {
  const auto driver = make_windowed_driver(kFiveWindows, 3000);
  const StreamKey key = driver->generate(1, counting(0, 4000), 20);
  const cache::BlockPool& pool = driver->scheduler().pool();
  int most = 0;
  while (driver->scheduler().sequence(key)->num_computed < 4000) {
    ASSERT_TRUE(driver->step());
    most = std::max(most, pool.num_pinned());
  }
  ASSERT_TRUE(driver->step());
  // 251 of 16 tokens without a window. 4001 tokens are computed: the next one sees those from 3490
  // on; the 32nd before them is in block 216, the 217th.
  EXPECT_EQ(pool.num_pinned(), 251 + 5 * (251 - 216));
  // Beside them, a step's 64 tokens.
  EXPECT_LE(most, 251 + 5 * (35 + 5));
  EXPECT_EQ(pool.num_evictable(), 5 * 216) << "what was passed is kept while there is room";
  driver->run();
  EXPECT_EQ(driver->outcome(key).tokens, tokens_after(counting(0, 4000), 20));
}

TEST(GroupsTest, APoolOfLittleMoreThanOneStreamNeedsIsEnough) {
  KvLayout layout = testing::windowed_layout(kFiveWindows, kGroupsStepTokens);
  const int least = Scheduler::min_blocks(4096, layout);
  EXPECT_EQ(least, 1 + 256 + 5 * (42 + 1));
  EXPECT_LT(least, Scheduler::min_blocks(4096) * 6 / 3) << "a third of what six groups would hold";
  const auto driver = make_windowed_driver(kFiveWindows, least);
  const StreamKey first = driver->generate(1, counting(0, 4000), 96);
  const StreamKey second = driver->generate(2, counting(5000, 3000), 96);
  driver->run();
  EXPECT_EQ(driver->outcome(first).tokens, tokens_after(counting(0, 4000), 96));
  EXPECT_EQ(driver->outcome(second).tokens, tokens_after(counting(5000, 3000), 96));
}

// Each chat ends elsewhere, far beyond the windows.
TEST(GroupsTest, ChatsThatShareALongPromptComputeItOnce) {
  const auto tokens_computed = [](std::span<const int> windows, bool has_stubs = false) {
    const auto driver = make_windowed_driver(windows, 4000, 4096, has_stubs);
    for (int chat = 0; chat < 10; ++chat) {
      const auto prompt = joined(counting(0, 1000), counting(10'000 * (chat + 1), 700));
      const StreamKey key = driver->generate(chat, prompt, 8);
      driver->run();
      EXPECT_EQ(driver->outcome(key).tokens, tokens_after(prompt, 8)) << chat;
    }
    return driver->scheduler().counters().num_tokens_computed;
  };
  const auto dense = tokens_computed({});
  EXPECT_EQ(dense, 1000 + 10 * (700 + 7));
  EXPECT_EQ(tokens_computed(std::array{128}), dense);
  EXPECT_EQ(tokens_computed(std::array{512}), dense);
  EXPECT_EQ(tokens_computed(std::array{128, 512}), dense);
  EXPECT_EQ(tokens_computed(std::array{128}, true), dense);
  EXPECT_EQ(tokens_computed(std::array{512}, true), dense);
}

// Others take all blocks that are free or were passed, before each chat. The first chat leaves
// nothing at the end of the prompt; the second goes on from a checkpoint, and then it is shared.
TEST(GroupsTest, WithLittleRoomASharedPromptIsComputedTwiceAtMost) {
  const auto tokens_computed = [](std::span<const int> windows) {
    const auto driver = make_windowed_driver(windows, 330, 2048);
    std::int64_t sum = 0;
    for (int chat = 0; chat < 10; ++chat) {
      driver->generate(100 + chat, counting(500'000 + 3000 * chat, 1600), 1);
      driver->run();
      const auto prompt = joined(counting(0, 1000), counting(10'000 * (chat + 1), 300));
      const StreamKey key = driver->generate(chat, prompt, 8);
      const auto before = driver->scheduler().counters().num_tokens_computed;
      driver->run();
      sum += driver->scheduler().counters().num_tokens_computed - before;
      EXPECT_EQ(driver->outcome(key).tokens, tokens_after(prompt, 8)) << chat;
    }
    return sum;
  };
  const auto dense = tokens_computed({});
  EXPECT_EQ(dense, 1000 + 10 * (300 + 7));
  EXPECT_EQ(tokens_computed(std::array{128}), dense + (1000 - 512));
}

// Little room: blocks that were passed go first, and those that all layers need stay.
TEST(GroupsTest, WhatWasPassedGoesFirst) {
  const auto driver = make_windowed_driver(std::array{32}, 300, 1024);
  const StreamKey key = driver->generate(1, counting(0, 800), 8);
  driver->run();
  const cache::BlockPool& pool = driver->scheduler().pool();
  EXPECT_EQ(pool.num_evictable(), 2 * 51) << "all of 807 tokens";
  // 197 are free. This takes 50 + some of a window, then what the first one has passed.
  driver->generate(2, counting(5000, 900), 8);
  driver->run();
  driver->generate(3, counting(8000, 700), 8);
  driver->run();
  const auto before = driver->scheduler().counters().num_tokens_computed;
  const auto text = joined(counting(0, 800), driver->outcome(key).tokens);
  driver->generate(4, text, 1);
  driver->run();
  EXPECT_EQ(driver->scheduler().counters().num_tokens_computed - before, 1)
      << "the end of the first stream is still there";
}

// Each counts with the most that it will hold, in which windows are: more run than hold all tokens,
// and none is set back.
TEST(GroupsTest, WithALimitOfAllTokensNoneIsSetBack) {
  constexpr std::array kWindows = {32, 32, 48};
  FakeAgentOptions agent;
  agent.vocab_size = kGroupsVocab;
  agent.num_blocks = 400;
  agent.kv_layout = testing::windowed_layout(kWindows, kGroupsStepTokens);
  SchedulerOptions options;
  options.vocab_size = kGroupsVocab;
  options.context_length = 1024;
  options.batch.max_tokens = kGroupsStepTokens;
  options.batch.max_total_tokens = 20'000;
  SchedulerDriver driver(agent, options);
  std::vector<StreamKey> keys;
  for (int i = 0; i < 16; ++i) {
    keys.push_back(driver.generate(i, counting(3000 * i, 300 + 7 * i), 200 + i, 1 + i % 3));
  }
  int most = 0;
  for (int i = 0; i < 200; ++i) {
    driver.step();
    most = std::max(most, driver.scheduler().num_running());
  }
  driver.run();
  // 32 to 40 blocks without a window, 6 or 7 in each with one, and what two steps write once: 6
  // streams; 5 where each counts that, and 3 where no window frees any.
  EXPECT_GE(most, 6);
  EXPECT_EQ(driver.scheduler().counters().num_preemptions, 0);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(driver.outcome(keys[static_cast<std::size_t>(i)]).tokens,
              tokens_after(counting(3000 * i, 300 + 7 * i), 200 + i));
  }
}

TEST(GroupsTest, WhereAllLayersHaveOneWindowAStreamHoldsNoMore) {
  const auto driver = make_windowed_driver(std::array{512}, 3000, 4096, true);
  const StreamKey key = driver->generate(1, counting(0, 4000), 20);
  const cache::BlockPool& pool = driver->scheduler().pool();
  int most = 0;
  while (driver->scheduler().sequence(key)->num_computed < 4001) {
    ASSERT_TRUE(driver->step());
    most = std::max(most, pool.num_pinned());
  }
  // As above: 251 runs of 16 tokens, of which the last 35.
  EXPECT_EQ(pool.num_pinned(), 251 - 216);
  EXPECT_LE(most, 35 + 5);
  EXPECT_EQ(pool.stubs().pinned, 251);
  driver->run();
  EXPECT_EQ(driver->outcome(key).tokens, tokens_after(counting(0, 4000), 20));
  // A window no shorter than the text frees none of the 251.
  const auto wide = make_windowed_driver(std::array{5000}, 3000, 4096, true);
  const StreamKey whole = wide->generate(1, counting(0, 4000), 20);
  while (wide->scheduler().sequence(whole)->num_computed < 4001) ASSERT_TRUE(wide->step());
  EXPECT_EQ(wide->scheduler().pool().num_pinned(), 251);
}

// Many streams much longer than the windows share a pool of little more than one needs at most: it
// is the blocks that are short, and never the stubs.
TEST(GroupsTest, StreamsOfOneWindowNeverLackStubs) {
  const KvLayout layout = testing::windowed_layout(std::array{16}, kGroupsStepTokens, true);
  const int least = Scheduler::min_blocks(4096, layout);
  EXPECT_EQ(least, 1 + 12);
  for (const int num_blocks : {least, 4 * least}) {
    const auto driver = make_windowed_driver(std::array{16}, num_blocks, 4096, true);
    std::vector<StreamKey> keys;
    for (int i = 0; i < 12; ++i) {
      keys.push_back(driver->generate(i, counting(10'000 * i, 2000 + 16 * i), 300));
    }
    const cache::BlockPool& pool = driver->scheduler().pool();
    int most = 0;
    while (driver->step()) {
      driver->scheduler().check_invariants();
      ASSERT_LT(pool.stubs().pinned, pool.num_stubs());
      most = std::max(most, pool.stubs().pinned);
    }
    EXPECT_GT(most, num_blocks * 6) << "texts of far more tokens than blocks hold";
    for (int i = 0; i < 12; ++i) {
      EXPECT_EQ(driver->outcome(keys[static_cast<std::size_t>(i)]).tokens,
                tokens_after(counting(10'000 * i, 2000 + 16 * i), 300));
    }
  }
}

// The pool has half the blocks of the text: what the place of the step back needs is gone.
TEST(GroupsTest, AForkOfOneWindowGoesOnBeforeIt) {
  const auto driver = make_windowed_driver(std::array{32}, 20, 1024, true);
  Scheduler& scheduler = driver->scheduler();
  const StreamKey key = driver->generate(1, counting(0, 600), 100);
  while (driver->outcome(key).tokens.size() < 5) ASSERT_TRUE(driver->step());
  ASSERT_TRUE(scheduler.fork(key, {1, 2}));
  ASSERT_TRUE(scheduler.backtrack({1, 2}, 400, counting(7000, 3)));
  ASSERT_TRUE(scheduler.fork({1, 2}, {1, 3}));
  driver->run();
  EXPECT_EQ(driver->outcome(key).tokens, tokens_after(counting(0, 600), 100));
  const int num_kept = 605 - 400;
  const auto text = joined(counting(0, num_kept), counting(7000, 3));
  const auto wanted = joined(counting(7000, 3), tokens_after(text, 97));
  EXPECT_EQ(driver->outcome({1, 2}).tokens, wanted);
  EXPECT_EQ(driver->outcome({1, 3}).tokens, wanted);
}

// With nothing else all that was passed is there; beside others it is gone, and the stream goes on
// from a checkpoint, at 256 tokens.
void expect_backtrack(bool has_stubs, int num_blocks) {
  for (const bool is_alone : {true, false}) {
    SCOPED_TRACE(is_alone);
    const auto driver = make_windowed_driver(std::array{32}, num_blocks, 1024, has_stubs);
    Scheduler& scheduler = driver->scheduler();
    auto sequence = std::make_unique<Sequence>();
    sequence->key = {1, 1};
    sequence->tokens = counting(0, 600);
    sequence->num_prompt = 600;
    sequence->params.max_tokens = 400;
    sequence->wants_notices = true;
    const StreamKey key = driver->add(std::move(sequence));
    for (int i = 0; i < 12; ++i) ASSERT_TRUE(driver->step());
    ASSERT_GE(driver->outcome(key).tokens.size(), 1U);
    if (!is_alone) {
      const StreamKey other = driver->generate(2, counting(5000, 700), 1);
      while (!driver->outcome(other).done) ASSERT_TRUE(driver->step());
    }
    const int length = scheduler.sequence(key)->length();
    const auto before = scheduler.counters().num_tokens_computed;
    ASSERT_TRUE(scheduler.backtrack(key, length - 300, counting(7000, 1)));
    while (scheduler.sequence(key)->num_computed < 301) ASSERT_TRUE(driver->step());
    // The last token that is kept, and the one after it.
    EXPECT_EQ(scheduler.counters().num_tokens_computed - before, is_alone ? 2 : 45);
    ASSERT_EQ(driver->notices().size(), is_alone ? 0U : 1U);
    if (!is_alone) {
      EXPECT_EQ(driver->notices()[0].kind, StreamNotice::Kind::kRecomputes);
      EXPECT_EQ(driver->notices()[0].num_tokens, 43);
    }
    driver->run();
    const auto wanted = tokens_after(joined(counting(0, 300), counting(7000, 1)), 399);
    EXPECT_EQ(driver->outcome(key).tokens, joined(counting(7000, 1), wanted));
  }
}

TEST(GroupsTest, ABacktrackGoesOnFromTheLatestPlaceThatAllGroupsHave) {
  expect_backtrack(false, 140);
}
TEST(GroupsTest, SoItDoesWhereAllLayersHaveOneWindow) { expect_backtrack(true, 60); }

TEST(GroupsTest, AStepBackOverABlockFindsAllWhereNothingElseIsLeft) {
  const auto driver = make_windowed_driver(std::array{32}, 140, 1024);
  const StreamKey key = driver->generate(1, counting(0, 600), 400);
  while (driver->outcome(key).tokens.size() < 10) ASSERT_TRUE(driver->step());
  const StreamKey other = driver->generate(2, counting(5000, 700), 1);
  while (!driver->outcome(other).done) ASSERT_TRUE(driver->step());
  Scheduler& scheduler = driver->scheduler();
  for (int drop = 1; drop <= 32; ++drop) {
    const int length = scheduler.sequence(key)->length();
    const auto before = scheduler.counters().num_tokens_computed;
    ASSERT_TRUE(scheduler.backtrack(key, drop, counting(7000 + drop, 1)));
    while (scheduler.sequence(key)->length() < length + 1) ASSERT_TRUE(driver->step());
    EXPECT_EQ(scheduler.counters().num_tokens_computed - before, drop + 1) << drop;
  }
}

}  // namespace
}  // namespace lmtp::scheduler
