// The parts of a Scheduler that decide what is admitted, each by itself: what its header promises.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lmtp/cache/block_pool.h"
#include "lmtp/cache/prefix_cache.h"
#include "lmtp/scheduler/fair_shares.h"
#include "lmtp/scheduler/score_recall.h"
#include "lmtp/scheduler/step_budget.h"
#include "lmtp/scheduler/waiting_line.h"
#include "small_cases.h"

namespace lmtp::scheduler {
namespace {

using testing::sequence_of;

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
  // A sequence of step 5. A waiting sequence has its whole prompt to compute but for what the hint
  // says.
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

// Admits what the line offers, and notes its ids.
class WaitingLineTest : public StepBudgetTest, public WaitingLine::Host {
 protected:
  Sequence& wait(int length, ConnectionId client, std::int64_t since = 4) {
    Sequence& sequence = add(waiting_, length, client);
    line_.add(sequence, since);
    return sequence;
  }
  WaitingLine::Admission admit(Sequence& sequence) override {
    offered_.push_back(sequence.id);
    if (sequence.id == does_not_fit_) return WaitingLine::Admission::kDoesNotFit;
    line_.remove(sequence);
    running_.push_back(&sequence);
    ++sequence.account->num_running;
    sequence.account->served += sequence.length();
    return WaitingLine::Admission::kAdmitted;
  }
  // The ids offered in one step, all of which have tokens left.
  std::vector<SequenceId> offered(std::int64_t step = 5) {
    offered_.clear();
    options_.batch.max_tokens = 10'000;
    line_.begin();
    divide();
    line_.admit_all(*this, step);
    return offered_;
  }
  using Ids = std::vector<SequenceId>;

  cache::BlockPool pool_{8};
  cache::PrefixCache prefixes_{pool_};
  ScoreRecall scores_{0};
  WaitingLine line_{options_, running_, prefixes_, shares_, budget_, scores_};
  Ids offered_;
  SequenceId does_not_fit_ = 0;
};

TEST_F(WaitingLineTest, ReturningOnesThenWhoWasServedLeastThenCachedPrefixesThenAge) {
  wait(50, 1);
  wait(50, 1).num_cached_hint = 20;
  wait(60, 2);
  wait(50, 1).is_returning = true;
  wait(50, 2);
  EXPECT_EQ(line_.order(5).front().stream, 4);
  EXPECT_EQ(offered(), (Ids{4, 3, 2, 5, 1}));
}

TEST_F(WaitingLineTest, WhoHasWaitedForLongPrecedesLongerPrefixes) {
  wait(50, 1, 5).num_cached_hint = 20;
  wait(50, 1, 4);
  EXPECT_EQ(line_.candidates(260).back()->id, 1U);
  EXPECT_EQ(line_.candidates(261).back()->id, 2U);
}

TEST_F(WaitingLineTest, ALowerPriorityComesFirstAmongItsClientsAloneAndBeforeCachedPrefixes) {
  wait(50, 1, -500);
  wait(50, 1).num_cached_hint = 20;
  wait(60, 2).priority = 7;
  wait(50, 1).priority = -1;
  wait(50, 2).priority = 9;
  EXPECT_EQ(line_.order(5).front().stream, 4);
  EXPECT_EQ(offered(), (Ids{4, 3, 1, 5, 2})) << "whose turn it is, no priority says";
}

TEST_F(WaitingLineTest, WhatRanBeforePrecedesAnyPriority) {
  wait(50, 1).priority = -9;
  wait(50, 1).is_returning = true;
  EXPECT_EQ(offered(), (Ids{2, 1}));
}

TEST_F(WaitingLineTest, ThreeInARowPassTheOldest) {
  for (int i = 1; i <= 9; ++i) wait(50, 1).priority = -i;
  EXPECT_EQ(offered(), (Ids{9, 8, 7, 1, 6, 5, 4, 2, 3}));
}

TEST_F(WaitingLineTest, ThoseThatPassAreCountedOverSteps) {
  wait(50, 1);
  for (SequenceId id = 2; id <= 4; ++id) {
    wait(50, 1).priority = -1;
    does_not_fit_ = 1;
    EXPECT_EQ(offered(), (Ids{id, 1}));
  }
  wait(50, 1).priority = -1;
  EXPECT_EQ(offered(), (Ids{1})) << "it is its turn until it is admitted";
  does_not_fit_ = 0;
  EXPECT_EQ(offered(), (Ids{1, 5}));
}

TEST_F(WaitingLineTest, PrioritiesAreThoseOfAllConnectionsOfAClient) {
  for (ConnectionId connection = 1; connection <= 3; ++connection) {
    wait(50, 1).key.connection = connection;
  }
  waiting_[1]->priority = -1;
  wait(50, 1).key.connection = 1;
  waiting_[3]->priority = -1;
  EXPECT_EQ(offered(), (Ids{2, 4, 3, 1})) << "then those without, of which one had a turn by 4";
}

TEST_F(WaitingLineTest, InACrowdAPriorityChoosesWhatOfAClientComesFirst) {
  for (int i = 0; i < 4; ++i) add(running_, 1, 1);
  wait(50, 2);                 // 5
  wait(50, 3).priority = -50;  // 6
  wait(50, 2).priority = -1;   // 7
  EXPECT_EQ(line_.candidates(5).back()->id, 7U);
  EXPECT_EQ(offered(), (Ids{7, 6, 5})) << "the other client's does not pass it";
}

TEST_F(WaitingLineTest, TheFirstThatDoesNotFitEndsTheAdmissions) {
  wait(50, 1);
  wait(50, 1);
  wait(50, 1);
  does_not_fit_ = 2;
  EXPECT_EQ(offered(), (Ids{1, 2}));
  EXPECT_TRUE(line_.may_be_passed_over(6)) << "the next step would say the same";
  EXPECT_FALSE(line_.may_be_passed_over(16)) << "a claim step";
  line_.forget_refusal();
  EXPECT_FALSE(line_.may_be_passed_over(6));
}

TEST_F(WaitingLineTest, InACrowdClientsThatRunNothingComeFirstEveryOtherStep) {
  for (int i = 0; i < 4; ++i) add(running_, 1, 1);
  wait(50, 1).is_returning = true;  // 5
  wait(50, 2);                      // 6
  EXPECT_EQ(offered(), (Ids{6, 5}));
  wait(50, 1).is_returning = true;
  wait(50, 3);
  EXPECT_EQ(offered(6), (Ids{7, 8})) << "now the others have their turn";
  wait(50, 1).is_returning = true;
  wait(50, 4);
  EXPECT_EQ(offered(7), (Ids{10, 9}));
}

TEST_F(WaitingLineTest, AFollowUpKeepsThePlaceOfItsStreamOnce) {
  const Sequence ended = sequence_of(90, 0, 20);
  line_.keep_place(ended);
  Sequence& next = wait(30, 1);
  line_.take_place(next);
  EXPECT_TRUE(next.keeps_place);
  Sequence& again = wait(30, 1);
  line_.take_place(again);
  EXPECT_FALSE(again.keeps_place);
}

}  // namespace
}  // namespace lmtp::scheduler
