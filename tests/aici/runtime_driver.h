// Plays the engine for a Runtime, without a model: draws the lowest token that is allowed, 'x'
// where any is, and does what the answers say.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lmtp/aici/runtime.h"

namespace lmtp::aici::testing {

constexpr std::chrono::seconds kAnswerTimeMax{60};  // of what hangs

// Waits for an answer.
template <typename T>
class Answer {
 public:
  Runtime::Done<T> done() {
    return [state = state_](T value) {
      const std::lock_guard lock(state->mutex);
      EXPECT_FALSE(state->value.has_value()) << "answered twice";
      state->value.emplace(std::move(value));
      state->changed.notify_all();
    };
  }
  T get() {
    std::unique_lock lock(state_->mutex);
    if (!state_->changed.wait_for(lock, kAnswerTimeMax,
                                  [&] { return state_->value.has_value(); })) {
      throw std::runtime_error("there is no answer");
    }
    return std::move(*state_->value);
  }
  bool is_there() {
    const std::lock_guard lock(state_->mutex);
    return state_->value.has_value();
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<T> value;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

struct DrivenSequence {
  enum class End { kNone, kStop, kFail };

  std::vector<TokenId> tokens;
  End end = End::kNone;
  std::string error;
  std::string logs;
  std::vector<VariableWrite> storage;
  int num_suspended = 0;
  int num_choices = 0;
  std::optional<float> temperature;  // of the last branch that has one

  // ids below 256 as bytes
  std::string text() const {
    std::string text;
    for (const TokenId token : tokens) {
      text += token < 256 ? std::string(1, static_cast<char>(token))
                          : "<" + std::to_string(token) + ">";
    }
    return text;
  }
};

class RuntimeDriver {
 public:
  explicit RuntimeDriver(Runtime& runtime) : runtime_(runtime) {}

  // Runs a request until its sequences have ended, or have num_choices_max steps each. Gives them
  // in the order of their numbers. Where it cannot be instantiated: one, with the error.
  std::vector<DrivenSequence> run(const std::string& controller, const std::string& arg,
                                  const std::string& prompt = "p", int num_choices_max = 50) {
    num_choices_max_ = num_choices_max;
    sequences_.clear();
    const std::string id = "request-" + std::to_string(++num_requests_);
    std::vector<TokenId> ids(prompt.begin(), prompt.end());
    Answer<Result<Instantiated>> answer;
    runtime_.instantiate({id, ids, controller, arg}, answer.done());
    Result<Instantiated> made = answer.get();
    DrivenSequence first;
    if (!made) {
      first.end = DrivenSequence::End::kFail;
      first.error = made.error().message;
      return {first};
    }
    first.tokens = made->prompt.value_or(ids);
    first.logs = made->log.logs;
    append(first.tokens, made->appended);
    const Sequence sequence = ++num_sequences_;
    sequences_[sequence] = first;
    runtime_.bind(id, sequence);
    num_live_ = 1;
    advance(sequence, {});
    while (num_live_ > 0) next_event()();
    std::vector<DrivenSequence> all;
    for (auto& [number, each] : sequences_) all.push_back(std::move(each));
    return all;
  }

  // A sequence that is to be left, when it is about to choose for the n-th time.
  std::function<bool(Sequence, const DrivenSequence&)> leaves =
      [](Sequence, const DrivenSequence&) { return false; };

 private:
  using Event = std::function<void()>;
  struct Queue {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Event> events;
  };

  static void append(std::vector<TokenId>& to, const std::vector<TokenId>& tokens) {
    to.insert(to.end(), tokens.begin(), tokens.end());
  }

  Event next_event() {
    std::unique_lock lock(queue_->mutex);
    if (!queue_->changed.wait_for(lock, kAnswerTimeMax, [&] { return !queue_->events.empty(); })) {
      throw std::runtime_error("there is no answer");
    }
    Event event = std::move(queue_->events.front());
    queue_->events.pop_front();
    return event;
  }

  template <typename T>
  Runtime::Done<T> done(Sequence sequence, void (RuntimeDriver::*handle)(Sequence, T)) {
    return [this, queue = queue_, sequence, handle](T answer) {
      const std::lock_guard lock(queue->mutex);
      queue->events.push_back([this, sequence, handle, answer = std::move(answer)] {
        (this->*handle)(sequence, answer);
      });
      queue->changed.notify_all();
    };
  }

  void advance(Sequence sequence, Report report) {
    runtime_.advance(sequence, std::move(report), done(sequence, &RuntimeDriver::on_advance));
  }
  void choose(Sequence sequence, const std::vector<Sequence>& group) {
    runtime_.choose(sequence, group, done(sequence, &RuntimeDriver::on_choice));
  }
  void end(Sequence sequence, DrivenSequence::End how, const std::string& error = {}) {
    sequences_[sequence].end = how;
    sequences_[sequence].error = error;
    runtime_.free(sequence);
    --num_live_;
  }
  void keep(Sequence sequence, const CallLog& log) {
    DrivenSequence& its = sequences_[sequence];
    its.logs += log.logs;
    its.storage.insert(its.storage.end(), log.storage.begin(), log.storage.end());
  }
  std::vector<Sequence> fork(Sequence parent, std::size_t num) {
    std::vector<Sequence> group{parent};
    for (std::size_t i = 1; i < num; ++i) {
      const Sequence child = ++num_sequences_;
      sequences_[child].tokens = sequences_[parent].tokens;
      group.push_back(child);
      ++num_live_;
    }
    if (num > 1) runtime_.fork(parent, {group.begin() + 1, group.end()});
    return group;
  }

  void on_advance(Sequence sequence, Advance answer) {
    DrivenSequence& its = sequences_[sequence];
    keep(sequence, answer.log);
    append(its.tokens, answer.appended);
    switch (answer.kind) {
      case Advance::Kind::kSuspend:
        ++its.num_suspended;
        advance(sequence, {});
        return;
      case Advance::Kind::kStop:
        end(sequence, DrivenSequence::End::kStop);
        return;
      case Advance::Kind::kFail:
        end(sequence, DrivenSequence::End::kFail, answer.error);
        return;
      case Advance::Kind::kGoOn:
        break;
    }
    if (leaves(sequence, its) || its.num_choices >= num_choices_max_) {
      end(sequence, DrivenSequence::End::kNone);
      return;
    }
    const std::vector<Sequence> group = fork(sequence, static_cast<std::size_t>(answer.num_forks));
    for (const Sequence each : group) choose(each, group);
  }

  void on_choice(Sequence sequence, Choice answer) {
    keep(sequence, answer.log);
    ++sequences_[sequence].num_choices;
    switch (answer.kind) {
      case Choice::Kind::kSuspend:
        ++sequences_[sequence].num_suspended;
        advance(sequence, {});
        return;
      case Choice::Kind::kStop:
        end(sequence, DrivenSequence::End::kStop);
        return;
      case Choice::Kind::kFail:
        end(sequence, DrivenSequence::End::kFail, answer.error);
        return;
      case Choice::Kind::kBranches:
        break;
    }
    const std::vector<Sequence> group = fork(sequence, answer.branches.size());
    for (std::size_t i = 0; i < group.size(); ++i) {
      advance(group[i], apply(sequences_[group[i]], answer.branches[i]));
    }
  }

  static TokenId draw(const Branch& branch) {
    const auto word = std::ranges::find_if(branch.mask, [](auto each) { return each != 0; });
    if (branch.mask.empty()) return 'x';
    EXPECT_NE(word, branch.mask.end());
    return static_cast<TokenId>(word - branch.mask.begin()) * 32 + std::countr_zero(*word);
  }

  static Report apply(DrivenSequence& to, const Branch& branch) {
    Report report;
    if (branch.temperature) to.temperature = branch.temperature;
    const Splice* done = nullptr;
    if (branch.samples) {
      report.sampled = draw(branch);
      for (const Splice& splice : branch.splices) {
        if (done == nullptr && (splice.when_sampled.empty() ||
                                std::ranges::count(splice.when_sampled, *report.sampled) > 0)) {
          done = &splice;
        }
      }
    } else {
      EXPECT_EQ(branch.splices.size(), 1U);
      done = branch.splices.data();
    }
    if (report.sampled && (done == nullptr || done->keeps_sampled)) {
      report.appended.push_back(*report.sampled);
    }
    if (done != nullptr) {
      report.num_dropped = done->num_dropped;
      append(report.appended, done->appended);
    }
    EXPECT_LE(static_cast<std::size_t>(report.num_dropped), to.tokens.size());
    to.tokens.resize(to.tokens.size() - static_cast<std::size_t>(report.num_dropped));
    append(to.tokens, report.appended);
    return report;
  }

  Runtime& runtime_;
  const std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
  std::map<Sequence, DrivenSequence> sequences_;
  Sequence num_sequences_ = 0;
  int num_requests_ = 0;
  int num_live_ = 0;
  int num_choices_max_ = 0;
};

}  // namespace lmtp::aici::testing
