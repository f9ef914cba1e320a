// An EventSink that records one connection's events and can wait for them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lmtp/request/request.h"

namespace lmtp::testing {

class RecordingSink : public EventSink {
 public:
  struct Stream {
    std::vector<TokenId> tokens;
    std::vector<float> logprobs;
    int num_forced = 0;
    std::vector<int> num_cached;  // of each token
    FinishReason finish = FinishReason::kNone;
    std::string error;
    int sample = 0;  // of the error
    bool model_failed = false;
    int num_loading = 0;
    int num_ends = 0;
    std::vector<int> progress;  // of the loading notices
    std::string loading_model;
    std::vector<StreamNotice> notices;
    int forked_at = -1;
    int fork_of = -1;  // a sample
    std::string logs;  // of its controller
    std::string storage;
    int forked_prompt = -1;
    std::string refused;  // an edit
    bool done = false;
    bool event_after_end = false;
  };

  void deliver(std::span<StreamEvent> events) override {
    {
      const std::lock_guard lock(mutex_);
      ++num_deliveries_;
      for (StreamEvent& event : events) std::visit([this](auto& e) { take(e); }, event);
    }
    changed_.notify_all();
  }

  // Waits until the stream has ended; after a minute the test fails by an empty error text.
  Stream wait_done(StreamId id) {
    return wait(id, [](const Stream& s) { return s.done; });
  }
  void wait_fork_begun(StreamId id, int sample) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::minutes(1), [&] { return forks_.contains({id, sample}); });
  }
  Stream wait_fork_done(StreamId id, int sample) {
    std::unique_lock lock(mutex_);
    const auto is_done = [&] { return forks_.contains({id, sample}) && of(id, sample).done; };
    changed_.wait_for(lock, std::chrono::minutes(1), is_done);
    return of(id, sample);
  }
  Stream wait_tokens(StreamId id, std::size_t count) {
    return wait(id, [count](const Stream& s) { return s.done || s.tokens.size() >= count; });
  }
  Stream wait_loading(StreamId id) {
    return wait(id, [](const Stream& s) { return s.done || s.num_loading > 0; });
  }
  Stream wait_notice(StreamId id) {
    return wait(id, [](const Stream& s) { return s.done || !s.notices.empty(); });
  }
  int num_deliveries() {
    const std::lock_guard lock(mutex_);
    return num_deliveries_;
  }

 private:
  template <typename Condition>
  Stream wait(StreamId id, Condition condition) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::minutes(1), [&] { return condition(streams_[id]); });
    return streams_[id];
  }

  // Forks by a controller are samples.
  Stream& of(StreamId id, int sample) {
    const auto fork = forks_.find({id, sample});
    return fork != forks_.end() ? fork->second : streams_[id];
  }

  void take(TokenEvent& entry) {
    Stream& s = of(entry.stream_id, entry.sample);
    s.event_after_end |= s.done;
    s.tokens.resize(s.tokens.size() - static_cast<std::size_t>(entry.num_backtracked));
    s.logprobs.resize(s.tokens.size());
    if (entry.token != kNoToken) s.tokens.push_back(entry.token);
    s.logprobs.push_back(entry.logprob);
    s.num_cached.push_back(entry.num_cached);
    s.num_forced += entry.is_forced ? 1 : 0;
    s.finish = entry.finish_reason;
    const bool ends = entry.finish_reason != FinishReason::kNone;
    s.num_ends += ends ? 1 : 0;
    s.done |= ends;
  }
  void take(ForkBegun& entry) {
    streams_[entry.stream_id].forked_at = entry.num_shared;
    streams_[entry.stream_id].forked_prompt = entry.num_prompt;
  }
  void take(SampleForked& entry) {
    const Stream parent = of(entry.stream_id, entry.fork_of);
    Stream& s = forks_[{entry.stream_id, entry.sample}];
    const auto num = static_cast<std::size_t>(entry.num_shared);
    s.event_after_end = num > parent.tokens.size();  // of the parent, which should have come before
    s.tokens = parent.tokens;
    s.tokens.resize(num);
    s.logprobs = parent.logprobs;
    s.logprobs.resize(num);
    s.forked_at = entry.num_shared;
    s.fork_of = entry.fork_of;
  }
  void take(ControllerOutput& entry) {
    Stream& s = of(entry.stream_id, entry.sample);
    s.logs += entry.logs;
    s.storage += entry.storage;
  }
  void take(EditRefused& entry) { streams_[entry.stream_id].refused = entry.error.message; }
  void take(StreamNotice& entry) { streams_[entry.stream_id].notices.push_back(entry); }
  void take(ModelReady& entry) {
    Stream& s = streams_[entry.stream_id];
    s.event_after_end |= s.done;
    ++s.num_ends;
    s.done = true;
  }
  void take(StreamError& entry) {
    Stream& s = of(entry.stream_id, entry.sample);
    s.event_after_end |= s.done;
    s.error = entry.error.message;
    s.sample = entry.sample;
    s.model_failed = entry.no_model;
    ++s.num_ends;
    s.done = true;
  }
  void take(LoadingNotice& entry) {
    Stream& s = streams_[entry.stream_id];
    s.event_after_end |= s.done;
    s.progress.push_back(entry.progress_percent);
    s.loading_model = entry.model;
    ++s.num_loading;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<StreamId, int>, Stream> forks_;
  std::map<StreamId, Stream> streams_;
  int num_deliveries_ = 0;
};

}  // namespace lmtp::testing
