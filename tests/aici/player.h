// Player: does with a Runtime what an engine does, without a model: of the tokens that a branch
// allows it draws one by their number and the length of the sequence.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lmtp/aici/runtime.h"

namespace lmtp::testing {

class Player {
 public:
  struct Ending {
    std::vector<TokenId> tokens;
    std::string end;  // "stop", "length", or the error
    std::string logs;
    std::vector<std::string> stored;  // name=value
    float temperature = 0;            // the last one

    bool operator==(const Ending&) const = default;
  };
  using Endings = std::map<std::string, Ending>;  // "r0", its forks "r0.1", "r0.2", theirs "r0.1.1"

  Player(aici::Runtime& runtime, int vocab_size, aici::Sequence first_id = 1)
      : runtime_(runtime), vocab_size_(vocab_size), next_id_(first_id) {}

  // Runs a request for each script to its end; `steps_max` choices each. Empty where nothing
  // was answered for half a minute.
  Endings play(const std::vector<std::string>& scripts, int steps_max = 100) {
    steps_max_ = steps_max;
    for (std::size_t i = 0; i < scripts.size(); ++i) {
      const std::string name = "r" + std::to_string(i);
      const std::string request_id = name + "-" + std::to_string(next_id_);
      ++num_open_;
      runtime_.instantiate({request_id, {1, 2, 3}, "script", scripts[i], {}},
                           [this, name, request_id](Result<aici::Instantiated> made) {
                             post([this, name, request_id, made = std::move(made)] {
                               begin(name, request_id, made);
                             });
                           });
    }
    while (num_open_ > 0) {
      std::unique_lock lock(mutex_);
      const auto is_there = [this] { return !events_.empty(); };
      if (!changed_.wait_for(lock, std::chrono::seconds(30), is_there)) return {};
      const auto events = std::exchange(events_, {});
      lock.unlock();
      for (const auto& event : events) event();
    }
    return endings_;
  }

  aici::Sequence next_id() const { return next_id_; }

  // Before each call of a sequence. The runtime then has time to act on a call before the next one,
  // of a fork of the same sequence, has come.
  std::chrono::milliseconds pause{0};

 private:
  struct Stream {
    std::string name;
    Ending ending;
    int num_forks = 0;
    int num_steps = 0;
  };

  void post(std::function<void()> event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    changed_.notify_one();
  }

  static void add_log(Ending& ending, const aici::CallLog& log) {
    ending.logs += log.logs;
    for (const auto& write : log.storage) ending.stored.push_back(write.name + "=" + write.value);
  }

  void begin(const std::string& name, const std::string& request_id,
             const Result<aici::Instantiated>& made) {
    if (!made) {
      --num_open_;
      endings_[name].end = made.error().message;
      return;
    }
    const aici::Sequence id = next_id_++;
    Stream& stream = streams_[id];
    stream.name = name;
    stream.ending.tokens = made->prompt.value_or(std::vector<TokenId>{1, 2, 3});
    append(stream, made->appended);
    add_log(stream.ending, made->log);
    runtime_.bind(request_id, id);
    advance(id, {});
  }

  static void append(Stream& stream, const std::vector<TokenId>& tokens) {
    stream.ending.tokens.insert(stream.ending.tokens.end(), tokens.begin(), tokens.end());
  }

  void end(aici::Sequence id, const std::string& why) {
    Stream& stream = streams_.at(id);
    stream.ending.end = why;
    endings_[stream.name] = stream.ending;
    streams_.erase(id);
    runtime_.free(id);
    --num_open_;
  }

  void advance(aici::Sequence id, aici::Report report) {
    std::this_thread::sleep_for(pause);
    runtime_.advance(id, std::move(report), [this, id](aici::Advance answer) {
      post([this, id, answer = std::move(answer)] { on_advance(id, answer); });
    });
  }

  std::vector<aici::Sequence> fork(aici::Sequence id, std::size_t num) {
    std::vector<aici::Sequence> group = {id};
    for (std::size_t i = 1; i < num; ++i) {
      Stream child = streams_.at(id);
      child.name += "." + std::to_string(++streams_.at(id).num_forks);
      child.num_forks = 0;
      child.ending.logs.clear();
      child.ending.stored.clear();
      group.push_back(next_id_++);
      streams_[group.back()] = std::move(child);
      ++num_open_;
    }
    if (num > 1) runtime_.fork(id, {group.begin() + 1, group.end()});
    return group;
  }

  void on_advance(aici::Sequence id, const aici::Advance& answer) {
    Stream& stream = streams_.at(id);
    append(stream, answer.appended);
    add_log(stream.ending, answer.log);
    switch (answer.kind) {
      case aici::Advance::Kind::kStop:
        return end(id, "stop");
      case aici::Advance::Kind::kFail:
        return end(id, answer.error);
      case aici::Advance::Kind::kSuspend:
        return advance(id, {});
      case aici::Advance::Kind::kGoOn:
        break;
    }
    if (++stream.num_steps > steps_max_) return end(id, "length");
    const auto group = fork(id, static_cast<std::size_t>(answer.num_forks));
    for (const aici::Sequence each : group) {
      std::this_thread::sleep_for(pause);
      runtime_.choose(each, group, [this, each](aici::Choice choice) {
        post([this, each, choice = std::move(choice)] { on_choice(each, choice); });
      });
    }
  }

  void on_choice(aici::Sequence id, const aici::Choice& choice) {
    add_log(streams_.at(id).ending, choice.log);
    switch (choice.kind) {
      case aici::Choice::Kind::kStop:
        return end(id, "stop");
      case aici::Choice::Kind::kFail:
        return end(id, choice.error);
      case aici::Choice::Kind::kSuspend:
        return advance(id, {});
      case aici::Choice::Kind::kBranches:
        break;
    }
    const auto group = fork(id, choice.branches.size());
    for (std::size_t i = 0; i < group.size(); ++i) {
      advance(group[i], do_branch(streams_.at(group[i]), choice.branches[i]));
    }
  }

  aici::Report do_branch(Stream& stream, const aici::Branch& branch) const {
    aici::Report report;
    const aici::Splice* splice = nullptr;
    if (branch.temperature) stream.ending.temperature = *branch.temperature;
    if (branch.samples) report.sampled = draw(branch.mask, stream.ending.tokens.size());
    for (const aici::Splice& each : branch.splices) {
      const bool fits = each.when_sampled.empty() ||
                        std::ranges::count(each.when_sampled, report.sampled.value_or(-1)) > 0;
      if (fits && splice == nullptr) splice = &each;
    }
    if (branch.samples && (splice == nullptr || splice->keeps_sampled)) {
      report.appended.push_back(*report.sampled);
    }
    if (splice != nullptr) {
      report.num_dropped = splice->num_dropped;
      report.appended.insert(report.appended.end(), splice->appended.begin(),
                             splice->appended.end());
    }
    std::vector<TokenId>& tokens = stream.ending.tokens;
    tokens.resize(tokens.size() - static_cast<std::size_t>(report.num_dropped));
    append(stream, report.appended);
    return report;
  }

  TokenId draw(const std::vector<std::uint32_t>& mask, std::size_t length) const {
    std::vector<TokenId> allowed;
    for (TokenId id = 0; id < vocab_size_; ++id) {
      const auto token = static_cast<std::size_t>(id);
      const bool fits = mask.empty() || (mask[token / 32] >> (token % 32) & 1U) != 0;
      if (fits) allowed.push_back(id);
    }
    return allowed.at(length % allowed.size());
  }

  aici::Runtime& runtime_;
  const int vocab_size_;
  aici::Sequence next_id_;
  int steps_max_ = 0;
  int num_open_ = 0;
  std::map<aici::Sequence, Stream> streams_;
  Endings endings_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> events_;
};

}  // namespace lmtp::testing
