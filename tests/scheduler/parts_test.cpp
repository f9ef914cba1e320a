// The parts of a Scheduler, each by itself: what its header promises.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "lmtp/cache/block_pool.h"
#include "lmtp/cache/prefix_cache.h"
#include "lmtp/scheduler/draft_policy.h"
#include "lmtp/scheduler/fair_shares.h"
#include "lmtp/scheduler/running_slots.h"
#include "lmtp/scheduler/score_recall.h"
#include "lmtp/scheduler/step_budget.h"
#include "small_cases.h"

namespace lmtp::scheduler {
namespace {

using testing::counting;

// A Generate with a prompt of the tokens first, first + 1, ...
Sequence sequence_of(StreamId id, int first, int length, ConnectionId connection = 1) {
  Sequence sequence;
  sequence.id = static_cast<SequenceId>(id);
  sequence.key = {connection, id};
  sequence.share = connection;
  sequence.tokens = counting(first, length);
  sequence.num_prompt = length;
  sequence.num_generated_max = 100;
  return sequence;
}

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
  RunningSlots slots(2);
  Sequence sequence = sequence_of(1, 10, 3);
  slots.take(sequence);
  EXPECT_EQ(sequence.slot, 0);
  sequence.tokens.push_back(7);
  slots.note_tokens(sequence, {{7}});  // it is sent with the others
  sequence.blocks = {5};
  slots.note_block(sequence, 0);
  const StepPlan first = sent(slots);
  ASSERT_EQ(first.changes.started.size(), 1U);
  EXPECT_EQ(first.changes.started[0].tokens, sequence.tokens);
  EXPECT_EQ(first.changes.started[0].blocks, sequence.blocks);
  EXPECT_TRUE(first.changes.tokens.empty());
  EXPECT_TRUE(first.changes.blocks.empty());
  slots.note_tokens(sequence, {{8, 9}});
  slots.note_block(sequence, 0);
  const StepPlan second = sent(slots);
  EXPECT_TRUE(second.changes.started.empty());
  ASSERT_EQ(second.changes.tokens.size(), 1U);
  EXPECT_EQ(second.changes.tokens[0].tokens, (std::vector<TokenId>{8, 9}));
  ASSERT_EQ(second.changes.blocks.size(), 1U);
  EXPECT_EQ(second.changes.blocks[0].block, 5);
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
    EXPECT_EQ(scores.next(asks), expected);
    ++asks.num_emitted;
  }
  EXPECT_EQ(scores.next(asks), std::nullopt);
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
  EXPECT_EQ(scores.next(asks), -1.0F);
  ++asks.num_emitted;
  EXPECT_EQ(scores.next(asks), std::nullopt);
  EXPECT_TRUE(asks.awaits_recall && scores.is_lacking() && scores.needs_round());
  scores.begin_round();
  EXPECT_FALSE(scores.is_lacking());
  scores.set_limit(1);
  EXPECT_EQ(scores.next(asks), -2.0F);
  EXPECT_FALSE(asks.awaits_recall);
}

TEST(ScoreRecallTest, OnlyScoresWithoutAlternativesAreGivenAnything) {
  ScoreRecall scores(1 << 20);
  Sequence kept = score_of(0, 4, 7);
  keep_all(scores, kept);
  Sequence asks = score_of(0, 4, 7);
  asks.params.top_logprobs = 2;
  EXPECT_EQ(scores.next(asks), std::nullopt);
  asks.params.top_logprobs = 0;
  asks.kind = RequestKind::kGenerate;
  EXPECT_EQ(scores.next(asks), std::nullopt);
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
  policy_.count(sequence, {.num_tokens = 5, .num_drafts = 4}, 0, 992);
  EXPECT_EQ(append(sequence), 1) << "8 steps, until step 1000";
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

TEST(FairSharesTest, WhoComesBackHasNoCreditAndKeepsADebt) {
  FairShares shares(true);
  Sequence first = sequence_of(1, 0, 4, 1);
  Sequence second = sequence_of(2, 0, 4, 2);
  shares.join(first);
  shares.join(second);
  shares.serve(*first.account, 100);
  shares.leave(second);
  shares.serve(*first.account, 50);
  shares.join(second);
  EXPECT_EQ(second.account->served, 150) << "the clock, at the least served one";
  shares.serve(*second.account, 1000);
  shares.leave(second);
  EXPECT_EQ(second.account, nullptr);
  shares.join(second);
  EXPECT_EQ(second.account->served, 1150) << "what it took while another one waited";
}

TEST(FairSharesTest, EachClientHasItsPartAtLeastOne) {
  FairShares shares(true);
  Sequence many = sequence_of(1, 0, 4, 1);
  Sequence one = sequence_of(2, 0, 4, 2);
  shares.join(many);
  EXPECT_EQ(shares.part(7), 7);
  shares.join(one);
  EXPECT_EQ(shares.part(7), 3);
  EXPECT_EQ(shares.part(0), 1);
  many.account->num_running = 4;
  EXPECT_FALSE(shares.has_crowd(8));
  EXPECT_TRUE(shares.has_crowd(7));
}

TEST(FairSharesTest, WhoRunsNothingClaimsAtOnceAndOthersAfterAWait) {
  FairShares shares(true);
  Sequence sequence = sequence_of(1, 0, 4);
  shares.join(sequence);
  EXPECT_TRUE(shares.may_claim(sequence, 2));
  EXPECT_FALSE(shares.may_claim(sequence, 3));
  EXPECT_FALSE(shares.may_claim(sequence, 16)) << "it has not waited long";
  EXPECT_TRUE(shares.may_claim(sequence, 32));
  EXPECT_FALSE(shares.may_claim(sequence, 33)) << "no claim step";
  sequence.account->num_running = 1;
  EXPECT_FALSE(shares.may_claim(sequence, 2));
  EXPECT_TRUE(shares.may_claim(sequence, 32));
  sequence.is_held = true;
  EXPECT_FALSE(shares.may_claim(sequence, 32));
  FairShares without(false);
  EXPECT_FALSE(without.may_claim(sequence_of(1, 0, 4), 32));
}

TEST(FairSharesTest, TheYoungestOfTheClientThatRunsMostIsTheVictim) {
  FairShares shares(true);
  std::vector<Sequence> sequences;
  for (StreamId id = 1; id <= 5; ++id) sequences.push_back(sequence_of(id, 0, 4, id <= 3 ? 1 : 2));
  std::vector<Sequence*> running;
  for (Sequence& sequence : sequences) {
    shares.join(sequence);
    ++sequence.account->num_running;
    running.push_back(&sequence);
  }
  EXPECT_EQ(FairShares::next_victim(running, {}, 1, 10)->id, 3U);
  EXPECT_EQ(FairShares::next_victim(running, {running[2]}, 1, 10)->id, 5U) << "of two each";
  EXPECT_EQ(FairShares::next_victim(running, {}, 3, 10), nullptr);
  FairShares::protect(*running[2], 10);
  EXPECT_EQ(FairShares::next_victim(running, {}, 2, 200)->id, 2U);
  EXPECT_FALSE(FairShares::may_be_victim(*running[2], 2, 265));
  EXPECT_TRUE(FairShares::may_be_victim(*running[2], 2, 266));
}

class StepBudgetTest : public ::testing::Test {
 protected:
  // Of step 5. A waiting sequence has its whole prompt to compute but for what the hint says.
  Sequence& add(std::vector<Sequence*>& to, int length, ConnectionId client = 1) {
    const auto id = static_cast<StreamId>(sequences_.size() + 1);
    sequences_.push_back(std::make_unique<Sequence>(sequence_of(id, 0, length, client)));
    Sequence& sequence = *sequences_.back();
    shares_.join(sequence);
    if (&to == &running_) ++sequence.account->num_running;
    to.push_back(&sequence);
    return sequence;
  }
  void divide(int num_decodes = 0, const StepLimits& limits = {}) {
    budget_.begin(limits, static_cast<int>(waiting_.size()), static_cast<int>(running_.size()));
    budget_.divide(limits, num_decodes, waiting_, running_, 5);
  }
  int tokens_for(const Sequence& sequence) {
    return budget_.tokens_for(sequence, sequence.length() - sequence.num_cached_hint, running_);
  }

  SchedulerOptions options_ = testing::small_options();  // 64 tokens a step
  FairShares shares_{true};
  StepBudget budget_{options_, shares_};
  std::vector<std::unique_ptr<Sequence>> sequences_;
  std::vector<Sequence*> waiting_;
  std::vector<Sequence*> running_;
};

TEST_F(StepBudgetTest, NeitherKindTakesAllFromTheOther) {
  add(running_, 1);  // if nothing ran both budgets would be open
  const Sequence& prompt = add(waiting_, 200);
  Sequence& cached = add(waiting_, 100);
  cached.num_cached_hint = 90;
  divide();
  EXPECT_EQ(tokens_for(prompt), 54);
  EXPECT_EQ(tokens_for(cached), 10);
  divide(40);
  EXPECT_EQ(tokens_for(prompt), 14) << "beside decodes: a quarter of the step, and what is left";
  budget_.spend(200, 14, false);
  EXPECT_EQ(tokens_for(prompt), 0);
  EXPECT_EQ(tokens_for(cached), 10);
  budget_.spend(10, 10, true);
  EXPECT_FALSE(budget_.has_any());
}

TEST_F(StepBudgetTest, APromptShorterThanAllRunningOnesGetsHalfOfTheirs) {
  add(running_, 100);
  divide();
  EXPECT_EQ(tokens_for(add(waiting_, 100)), 0);
  EXPECT_EQ(tokens_for(add(waiting_, 99)), 32);
  EXPECT_EQ(budget_.most_for_oldest({}, 5), 64);
  EXPECT_EQ(budget_.most_for_oldest(std::span(waiting_).last(1), 5), 32);
}

TEST_F(StepBudgetTest, InACrowdAClientThatRunsNothingUsesBothBudgetsForAWholePrompt) {
  add(running_, 150);
  Sequence& cached = add(waiting_, 100);
  cached.num_cached_hint = 90;
  divide();
  const Sequence& prompt = add(waiting_, 36, 2);
  const int one = tokens_for(prompt);
  EXPECT_LT(one, 36);
  budget_.set_crowd(true);
  EXPECT_EQ(tokens_for(prompt), 36);
  EXPECT_TRUE(budget_.spends_cached_first(prompt, 36));
  EXPECT_EQ(tokens_for(add(waiting_, 38, 2)), one) << "they do not suffice for all of it";
  EXPECT_EQ(tokens_for(add(waiting_, 36)), one) << "its client runs something";
}

TEST_F(StepBudgetTest, ClaimantsTakeABlockOfTheOtherBudgetAndLeaveATokenToEachOther) {
  Sequence& running = add(running_, 100);
  Sequence& prompt = add(waiting_, 100, 2);
  Sequence& other = add(waiting_, 100, 3);
  divide();
  EXPECT_EQ(tokens_for(prompt), 0);
  shares_.add_claimant(prompt);
  shares_.add_claimant(other);
  EXPECT_EQ(tokens_for(prompt), 63);
  budget_.spend(100, 63, false);
  EXPECT_EQ(tokens_for(other), 0);
  other.status = SequenceStatus::kRunning;
  EXPECT_EQ(tokens_for(prompt), 1);
  shares_.clear_claimants();
  EXPECT_EQ(tokens_for(prompt), 0);
  running.is_held = true;
  EXPECT_EQ(tokens_for(prompt), 1) << "nothing else can run";
}

TEST_F(StepBudgetTest, PacingHoldsPromptsBackUntilSomeStepsHavePassed) {
  options_.batch.pacing = AdmissionPacing{.waiting_served_ratio = 2, .max_waiting_steps = 2};
  add(running_, 1);
  Sequence& prompt = add(waiting_, 30);
  for (const int expected : {0, 0, 16}) {
    divide(1);
    EXPECT_EQ(tokens_for(prompt), expected);
    budget_.end_step();
  }
  divide(1);
  budget_.spend(30, 16, false);
  divide(1);
  EXPECT_EQ(tokens_for(prompt), 0) << "one was just let in";
  prompt.is_returning = true;
  EXPECT_GT(tokens_for(prompt), 0);
}

TEST_F(StepBudgetTest, OneLongPrefixAStepComesFromTheHost) {
  Sequence& sequence = add(waiting_, 30);
  divide(0, {.fetched = 4});
  EXPECT_TRUE(budget_.may_fetch(sequence, 9, 5)) << "the first may have more";
  budget_.count_fetched(3);
  EXPECT_TRUE(budget_.may_fetch(sequence, 1, 5));
  EXPECT_FALSE(budget_.may_fetch(sequence, 2, 5));
  EXPECT_TRUE(budget_.may_fetch(sequence, 2, 257)) << "it has waited for long";
  shares_.add_claimant(sequence);
  EXPECT_TRUE(budget_.may_fetch(sequence, 2, 5));
}

}  // namespace
}  // namespace lmtp::scheduler
