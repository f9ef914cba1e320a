// Drives a Scheduler over a FakeAgent step by step, checking the invariants after each.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "fake_agent.h"
#include "lmtp/scheduler/scheduler.h"

namespace lmtp::testing {

class SchedulerDriver {
 public:
  struct Outcome {
    std::vector<TokenId> tokens;
    std::vector<float> logprobs;
    FinishReason finish = FinishReason::kNone;
    std::string error;
    bool done = false;
    int num_reported = 0;  // entries, those that were dropped later included
  };

  SchedulerDriver(FakeAgentOptions agent, scheduler::SchedulerOptions options)
      : agent_(agent), scheduler_([&] {
          options.num_blocks = agent.num_blocks;
          options.num_host_blocks = agent.num_host_blocks;
          options.kv_layout = agent.kv_layout;
          return options;
        }()) {}

  StreamKey add(std::unique_ptr<scheduler::Sequence> sequence) {
    const StreamKey key = sequence->key;
    if (sequence->share == 0) sequence->share = key.connection;
    if (!on_event_) outcome(key) = {};
    admitted_.erase({key.connection, key.stream});
    take(scheduler_.add(std::move(sequence)));
    return key;
  }

  StreamKey generate(StreamId id, std::vector<TokenId> prompt, int max_tokens,
                     ConnectionId connection = 1, SamplingParams params = {},
                     std::shared_ptr<const Adapter> adapter = nullptr) {
    auto sequence = std::make_unique<scheduler::Sequence>();
    sequence->key = {connection, id};
    sequence->num_prompt = static_cast<int>(prompt.size());
    sequence->tokens = std::move(prompt);
    sequence->params = std::move(params);
    sequence->params.max_tokens = max_tokens;
    sequence->weights_of_adapter = std::move(adapter);
    return add(std::move(sequence));
  }

  StreamKey score(StreamId id, std::vector<TokenId> prompt, const std::vector<TokenId>& scored,
                  ConnectionId connection = 1, std::shared_ptr<const Adapter> adapter = nullptr,
                  std::vector<TokenId> listed = {}) {
    auto sequence = std::make_unique<scheduler::Sequence>();
    sequence->key = {connection, id};
    sequence->weights_of_adapter = std::move(adapter);
    sequence->kind = RequestKind::kScore;
    if (!listed.empty()) {
      sequence->params.logprob_token_ids =
          std::make_shared<const std::vector<TokenId>>(std::move(listed));
    }
    sequence->params.top_logprobs = 0;
    sequence->num_prompt = static_cast<int>(prompt.size());
    sequence->tokens = std::move(prompt);
    sequence->tokens.insert(sequence->tokens.end(), scored.begin(), scored.end());
    return add(std::move(sequence));
  }

  // Gets each event instead of outcome().
  using OnEvent = std::function<void(const scheduler::SchedulerEvent&)>;
  void set_on_event(OnEvent on_event) { on_event_ = std::move(on_event); }

  // May change what a step gave, before it is committed.
  using OnResult =
      std::function<void(const scheduler::StepPlan& plan, scheduler::StepResult& result)>;
  void set_on_result(OnResult on_result) { on_result_ = std::move(on_result); }

  // One step; false if there was nothing to do. If the agent runs ahead, also starts the next one
  // if it can be planned.
  bool step(const scheduler::StepLimits& limits = {}, bool may_start_ahead = true) {
    if (num_started_ == 0) {
      const scheduler::StepPlan& plan = scheduler_.plan(limits);
      if (plan.empty()) return give_cached_scores();
      if (const Result<void> started = start(plan); !started) {
        abort(started.error());
        return true;
      }
    }
    Result<void> ahead_started;
    if (agent_.runs_ahead() && may_start_ahead) {
      const scheduler::StepPlan& ahead = scheduler_.plan_ahead();
      if (!ahead.empty()) {
        ahead_started = start(ahead);
        ++num_steps_ahead_;
      }
    }
    Result<scheduler::StepResult> result = agent_.collect();
    --num_started_;
    if (!result) {
      abort(result.error());
      return true;
    }
    if (on_result_) on_result_(*started_.front(), *result);
    started_.pop_front();
    take(scheduler_.commit(*result));
    scheduler_.check_invariants();
    if (!ahead_started) abort(ahead_started.error());
    return true;
  }

  // Finishes a step that was started ahead, so that streams can be added and removed.
  void settle() {
    while (num_started_ > 0) step({}, false);
  }
  int num_steps_ahead() const { return num_steps_ahead_; }

  void run(int max_steps = 100'000) {
    for (int i = 0; i < max_steps && step(); ++i) {
    }
    ASSERT_TRUE(scheduler_.idle() && num_started_ == 0);
  }

  Outcome& outcome(StreamKey key) { return outcomes_[{key.connection, key.stream}]; }
  scheduler::Scheduler& scheduler() { return scheduler_; }
  // Its sequences are gone where they have ended.
  const scheduler::StepPlan& last_plan() const { return last_plan_; }
  // Those of its rows.
  const std::vector<StreamKey>& last_keys() const { return last_keys_; }
  // Of all plans so far.
  const std::vector<scheduler::SequenceNotice>& notices() const { return notices_; }

 private:
  bool give_cached_scores() {
    if (!scheduler_.lacks_recalls()) return false;
    scheduler_.set_recalls(1000);
    take(scheduler_.recall_more());
    scheduler_.check_invariants();
    return true;
  }

  void abort(const Error& error) {
    take(scheduler_.abort(error));
    num_started_ = 0;
    started_.clear();
    scheduler_.check_invariants();
  }

  Result<void> start(const scheduler::StepPlan& plan) {
    last_plan_ = plan;
    notices_.insert(notices_.end(), plan.notices.begin(), plan.notices.end());
    last_keys_.clear();
    for (std::size_t i = 0; i < plan.rows.size(); ++i) {
      last_keys_.push_back(scheduler_.sequence_of(plan, i)->key);
    }
    for (const scheduler::AdmittedSequence& one : plan.admitted) {
      EXPECT_NE(std::ranges::find(last_keys_, one.key), last_keys_.end()) << "not in this step";
      EXPECT_TRUE(admitted_.insert({one.key.connection, one.key.stream}).second) << "once more";
    }
    for (const StreamKey& key : last_keys_) {
      EXPECT_TRUE(admitted_.contains({key.connection, key.stream})) << "never admitted";
    }
    Result<void> started = agent_.start(plan);
    if (started) started_.push_back(&plan);
    num_started_ += started ? 1 : 0;
    return started;
  }

  void take(std::vector<scheduler::SchedulerEvent> events) {
    for (auto& event : events) {
      if (on_event_) {
        on_event_(event);
        continue;
      }
      Outcome& to = outcome(event.key);
      EXPECT_FALSE(to.done) << "an event after the last one";
      if (auto* token = std::get_if<TokenEvent>(&event.entry)) {
        const auto kept =
            to.tokens.size() -
            std::min(to.tokens.size(), static_cast<std::size_t>(token->num_backtracked));
        to.tokens.resize(kept);
        to.logprobs.resize(kept);
        to.num_reported++;
        to.tokens.push_back(token->token);
        to.logprobs.push_back(token->logprob);
        to.finish = token->finish_reason;
        to.done = token->finish_reason != FinishReason::kNone;
      } else {
        to.error = std::get<StreamError>(event.entry).error.message;
        to.done = true;
      }
    }
  }

  FakeAgent agent_;
  scheduler::Scheduler scheduler_;
  scheduler::StepPlan last_plan_;
  std::vector<StreamKey> last_keys_;
  std::vector<scheduler::SequenceNotice> notices_;
  std::deque<const scheduler::StepPlan*> started_;
  OnEvent on_event_;
  OnResult on_result_;
  int num_started_ = 0;
  int num_steps_ahead_ = 0;
  std::set<std::pair<ConnectionId, StreamId>> admitted_;
  std::map<std::pair<ConnectionId, StreamId>, Outcome> outcomes_;
};

}  // namespace lmtp::testing
