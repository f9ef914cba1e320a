// Parts of a Scheduler, each by itself: what its header promises. admission_test.cpp has those that
// decide what is admitted.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "lmtp/cache/block_pool.h"
#include "lmtp/cache/prefix_cache.h"
#include "lmtp/scheduler/draft_policy.h"
#include "lmtp/scheduler/live_sequences.h"
#include "lmtp/scheduler/planned_steps.h"
#include "lmtp/scheduler/running_slots.h"
#include "lmtp/scheduler/score_recall.h"
#include "small_cases.h"

namespace lmtp::scheduler {
namespace {

using testing::sequence_of;

StepPlan sent(RunningSlots& slots) {
  StepPlan plan;
  slots.send(plan);
  return plan;
}

TEST(RunningSlotsTest, TheFirstPlanEndsAllSlots) {
  RunningSlots slots(3);
  EXPECT_EQ(sent(slots).changes.ended, (std::vector<int>{2, 1, 0}));
  EXPECT_TRUE(sent(slots).changes.ended.empty());
}

TEST(RunningSlotsTest, WhatStartsIsSentWholeAndThenByWhatChanges) {
  cache::BlockPool pool(4);
  cache::PrefixCache cache(pool);
  RunningSlots slots(2);
  Sequence sequence = sequence_of(1, 10, 3);
  slots.take(sequence);
  EXPECT_EQ(sequence.slot, 0);
  sequence.tokens.push_back(7);
  slots.note_tokens(sequence, {{7}});  // it is sent with the others
  ASSERT_TRUE(sequence.blocks.extend(cache, 4));
  slots.note_block(sequence, 0);
  const StepPlan first = sent(slots);
  ASSERT_EQ(first.changes.started.size(), 1U);
  EXPECT_EQ(first.changes.started[0].tokens, sequence.tokens);
  EXPECT_EQ(first.changes.started[0].blocks, sequence.blocks.ids());
  EXPECT_TRUE(first.changes.tokens.empty());
  EXPECT_TRUE(first.changes.blocks.empty());
  slots.note_tokens(sequence, {{8, 9}});
  slots.note_block(sequence, 0);
  const StepPlan second = sent(slots);
  EXPECT_TRUE(second.changes.started.empty());
  ASSERT_EQ(second.changes.tokens.size(), 1U);
  EXPECT_EQ(second.changes.tokens[0].tokens, (std::vector<TokenId>{8, 9}));
  ASSERT_EQ(second.changes.blocks.size(), 1U);
  EXPECT_EQ(second.changes.blocks[0].block, sequence.blocks[0]);
}

TEST(RunningSlotsTest, WhatWasNotedOfASequenceThatLeavesIsDropped) {
  RunningSlots slots(2);
  Sequence sequence = sequence_of(1, 10, 3);
  Sequence other = sequence_of(2, 20, 3);
  slots.take(sequence);
  slots.take(other);
  sent(slots);
  slots.note_tokens(sequence, {{7}});
  slots.note_tokens(other, {{8}});
  slots.leave(sequence);
  slots.leave(sequence);
  EXPECT_EQ(sequence.slot, -1);
  const StepPlan plan = sent(slots);
  EXPECT_EQ(plan.changes.ended, std::vector<int>{0});
  ASSERT_EQ(plan.changes.tokens.size(), 1U);
  EXPECT_EQ(plan.changes.tokens[0].slot, other.slot);
  Sequence* const running[] = {&other};
  slots.check(running);
  slots.restart(other);
  EXPECT_EQ(sent(slots).changes.started.size(), 1U);
}

Sequence score_of(int first, int num_prompt, int length) {
  Sequence sequence = sequence_of(1, first, length);
  sequence.kind = RequestKind::kScore;
  sequence.params.top_logprobs = 0;
  sequence.num_prompt = num_prompt;
  return sequence;
}

// Reports and keeps the scores -1, -2, ... of all tokens after the prompt.
void keep_all(ScoreRecall& scores, Sequence& sequence) {
  ASSERT_TRUE(scores.begin_row(sequence));
  for (int i = 1; sequence.num_prompt + sequence.num_emitted < sequence.length(); ++i) {
    ++sequence.num_emitted;
    scores.keep(sequence, static_cast<float>(-i));
  }
  scores.flush(sequence);
}

TEST(ScoreRecallTest, GivesWhatIsKnownUpToTheFirstThatIsNot) {
  ScoreRecall scores(1 << 20);
  Sequence kept = score_of(0, 4, 7);
  keep_all(scores, kept);
  Sequence asks = score_of(0, 4, 8);
  for (const float expected : {-1.0F, -2.0F, -3.0F}) {
    EXPECT_EQ(scores.next(asks)->logprob, expected);
    ++asks.num_emitted;
  }
  EXPECT_FALSE(scores.next(asks));
  EXPECT_FALSE(asks.awaits_recall);
  EXPECT_FALSE(scores.is_lacking());
}

TEST(ScoreRecallTest, GivesNoMoreThanTheLimitAndHasTheOthersWait) {
  ScoreRecall scores(1 << 20);
  Sequence kept = score_of(0, 4, 7);
  keep_all(scores, kept);
  EXPECT_TRUE(scores.needs_round()) << "a Score computed some";
  EXPECT_FALSE(scores.needs_round());
  scores.set_limit(1);
  Sequence asks = score_of(0, 4, 7);
  EXPECT_EQ(scores.next(asks)->logprob, -1.0F);
  ++asks.num_emitted;
  EXPECT_FALSE(scores.next(asks));
  EXPECT_TRUE(asks.awaits_recall && scores.is_lacking() && scores.needs_round());
  scores.begin_round();
  EXPECT_FALSE(scores.is_lacking());
  scores.set_limit(1);
  EXPECT_EQ(scores.next(asks)->logprob, -2.0F);
  EXPECT_FALSE(asks.awaits_recall);
}

TEST(ScoreRecallTest, OnlyScoresWithoutAlternativesAreGivenAnything) {
  ScoreRecall scores(1 << 20);
  Sequence kept = score_of(0, 4, 7);
  keep_all(scores, kept);
  Sequence asks = score_of(0, 4, 7);
  asks.params.top_logprobs = 2;
  EXPECT_FALSE(scores.next(asks));
  asks.params.top_logprobs = 0;
  asks.params.measures.entropy = true;
  EXPECT_FALSE(scores.next(asks)) << "it is computed";
  asks.params.measures = {};
  asks.kind = RequestKind::kGenerate;
  EXPECT_FALSE(scores.next(asks));
  ScoreRecall off(0);
  EXPECT_FALSE(off.begin_row(kept) || off.may_recall(score_of(0, 4, 7)));
}

class DraftPolicyTest : public ::testing::Test {
 protected:
  // What follows the text's last tokens where they came before.
  int append(const Sequence& sequence, int room = 8) {
    drafts_.clear();
    return policy_.append(sequence, room, 1000, prefixes_, drafts_);
  }
  // A text that ends as it began, so that `rest` may come next.
  static Sequence repeating() {
    Sequence sequence = sequence_of(1, 0, 12);
    for (const TokenId token : {0, 1, 2, 3}) sequence.tokens.push_back(token);
    sequence.num_prompt = sequence.length();
    return sequence;
  }
  static SchedulerOptions options() {
    SchedulerOptions options = testing::small_options();
    options.max_drafts = 4;
    return options;
  }

  const SchedulerOptions options_ = options();
  cache::BlockPool pool_{8};
  cache::PrefixCache prefixes_{pool_};
  DraftPolicy policy_{options_};
  std::vector<TokenId> drafts_;
};

TEST_F(DraftPolicyTest, RefusedDraftsAreEarnedByRows) {
  StepPlan plan;
  EXPECT_EQ(policy_.room(plan), 0);
  Sequence sequence = repeating();
  policy_.count(sequence, {.num_tokens = 80}, 0, 1);
  EXPECT_EQ(policy_.room(plan), 2);
  plan.drafts = {1};
  EXPECT_EQ(policy_.room(plan), 1);
  plan.num_tokens = 32;
  EXPECT_EQ(policy_.room(plan), 0) << "the step has as many rows as drafts may come to";
  plan.num_tokens = 0;
  plan.drafts.clear();
  policy_.count(sequence, {.num_tokens = 2, .num_drafts = 2}, 0, 1);
  EXPECT_EQ(policy_.room(plan), 0) << "two were refused";
}

TEST_F(DraftPolicyTest, AStreamGetsMoreWhileAllAreAcceptedAndPausesWhenNoneIs) {
  Sequence sequence = repeating();
  EXPECT_EQ(append(sequence), 1);
  EXPECT_EQ(drafts_, std::vector<TokenId>{4});
  policy_.count(sequence, {.num_tokens = 2, .num_drafts = 1}, 1, 900);
  EXPECT_EQ(append(sequence), 2);
  policy_.count(sequence, {.num_tokens = 3, .num_drafts = 2}, 2, 901);
  policy_.count(sequence, {.num_tokens = 5, .num_drafts = 4}, 4, 902);
  EXPECT_EQ(append(sequence), 4) << "max_drafts";
  EXPECT_EQ(append(sequence, 3), 3) << "the room";
  policy_.count(sequence, {.num_tokens = 5, .num_drafts = 4}, 0, 997);
  EXPECT_EQ(append(sequence), 0) << "it pauses until step 1001";
  policy_.count(sequence, {.num_tokens = 5, .num_drafts = 4}, 0, 993);
  EXPECT_EQ(append(sequence), 0) << "8 steps, until step 1001";
  policy_.count(sequence, {.num_tokens = 5, .num_drafts = 4}, 0, 984);
  EXPECT_EQ(append(sequence), 1) << "16 steps, until step 1000";
}

TEST_F(DraftPolicyTest, NoneWhereEachTokenDecidesWhatMayFollow) {
  Sequence sequence = repeating();
  sequence.is_controlled = true;
  EXPECT_EQ(append(sequence), 0);
  sequence.is_controlled = false;
  sequence.is_end_withheld = true;
  EXPECT_EQ(append(sequence), 0);
  sequence.is_end_withheld = false;
  sequence.num_generated_max = 1;
  EXPECT_EQ(append(sequence), 0) << "its last token is the one that is drawn";
  sequence.num_generated_max = 2;
  EXPECT_EQ(append(sequence), 1);
}

TEST(LiveSequencesTest, CountsHeldOnesAndKnowsHowLongStreamsWere) {
  LiveSequences live;
  Sequence& first = live.add(std::make_unique<Sequence>(sequence_of(1, 0, 4)));
  Sequence& second = live.add(std::make_unique<Sequence>(sequence_of(2, 0, 4)));
  EXPECT_LT(first.id, second.id);
  EXPECT_TRUE(live.set_held(first, true) && live.set_held(second, true));
  EXPECT_FALSE(live.set_held(first, true));
  EXPECT_EQ(live.num_held(), 2);
  const double before = live.mean_generated();
  live.erase(second);
  EXPECT_EQ(live.mean_generated(), before) << "it generated nothing";
  first.tokens.resize(4 + 80);
  live.erase(first);
  EXPECT_EQ(live.mean_generated(), before + (80 - before) / 64);
  EXPECT_EQ(live.num_held(), 0);
  EXPECT_EQ(live.find({1, 1}), nullptr);
}

TEST(PlannedStepsTest, AStepAheadStartsWhereTheCurrentOneEnds) {
  PlannedSteps steps;
  Sequence sequence = sequence_of(1, 0, 4);
  steps.begin();
  steps.add_row(sequence, {.num_tokens = 4, .num_logits = 1});
  steps.end_making();
  steps.begin_ahead();
  EXPECT_EQ(sequence.length_ahead(), 5);
  steps.end_making();
  EXPECT_EQ(sequence.length_ahead(), 4);
  EXPECT_EQ(steps.number(), 1) << "nothing was planned ahead";
  steps.begin_ahead();
  steps.add_row(sequence, {.first_position = 4, .num_tokens = 1, .num_logits = 1});
  steps.end_making();
  EXPECT_EQ(steps.number(), 2);
  EXPECT_TRUE(steps.discard_planned_row(sequence));
  EXPECT_FALSE(steps.discard_planned_row(sequence));
  steps.end();
  steps.advance();
  EXPECT_TRUE(steps.is_under_way());
  EXPECT_EQ(steps.current().plan.rows.size(), 1U);
  EXPECT_EQ(steps.current().sequences[0], nullptr);
  steps.end();
  steps.advance();
  EXPECT_FALSE(steps.is_under_way());
}

TEST(PlannedStepsTest, ARowIsTakenOutAndALackOfBlocksDropsTheStepAhead) {
  PlannedSteps steps;
  Sequence first = sequence_of(1, 0, 4);
  Sequence second = sequence_of(2, 0, 4);
  steps.begin();
  steps.add_row(first, {.num_tokens = 4, .num_logits = 1});
  steps.add_row(second, {.num_tokens = 3});
  steps.remove_row(first);
  steps.remove_row(first);
  EXPECT_EQ(steps.current().plan.num_tokens, 3);
  EXPECT_EQ(steps.current().plan.num_logits, 0);
  steps.end_making();
  steps.begin_ahead();
  steps.add_row(second, {.num_tokens = 1});
  steps.note_lack_of_blocks();
  steps.end_making();
  EXPECT_TRUE(steps.ahead().plan.empty() && steps.ahead().sequences.empty());
  EXPECT_EQ(steps.number(), 1);
}

}  // namespace
}  // namespace lmtp::scheduler
