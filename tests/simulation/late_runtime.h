// LateRuntime: a ScriptedRuntime some of whose choices come late, as those of real controllers do.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fake_agent.h"
#include "lmtp/base/bounded_queue.h"
#include "scripted_runtime.h"
#include "simulator.h"

namespace lmtp::simulation {

// Owner: a model. Threads of the simulation. Its own memory does not run out.
class LateRuntime final : public testing::ScriptedRuntime {
 public:
  // is_late: at times.
  LateRuntime(Simulator& simulator, std::uint64_t seed, bool is_late,
              std::function<void(const std::string&)> on_problem)
      : ScriptedRuntime(testing::kFakeVocabSize, std::move(on_problem)),
        simulator_(simulator),
        random_(seed),
        is_late_(is_late),
        thread_([this] { run(); }) {}
  ~LateRuntime() override {
    jobs_.close();
    thread_.join();
  }
  LateRuntime(const LateRuntime&) = delete;
  LateRuntime& operator=(const LateRuntime&) = delete;

  void upload(std::string wasm, aici::Auth auth, Done<Result<aici::ModuleInfo>> done) override {
    later([this, wasm = std::move(wasm), auth = std::move(auth), done = std::move(done)]() mutable {
      ScriptedRuntime::upload(std::move(wasm), std::move(auth), std::move(done));
    });
  }
  void get_tags(aici::Auth auth, Done<Result<std::vector<aici::TagInfo>>> done) override {
    later([this, auth = std::move(auth), done = std::move(done)]() mutable {
      ScriptedRuntime::get_tags(std::move(auth), std::move(done));
    });
  }
  void bind(const std::string& id, Sequence sequence) override {
    const EnoughMemory enough;
    ScriptedRuntime::bind(id, sequence);
  }
  void discard(const std::string& id) override {
    const EnoughMemory enough;
    ScriptedRuntime::discard(id);
  }
  void advance(Sequence id, aici::Report report, Done<Advance> done) override {
    const EnoughMemory enough;
    ScriptedRuntime::advance(id, std::move(report), std::move(done));
  }
  void choose(Sequence id, std::vector<Sequence> group, Done<Choice> done) override {
    const EnoughMemory enough;
    if (!is_late_ || !random_.one_in(8)) {
      return ScriptedRuntime::choose(id, std::move(group), std::move(done));
    }
    waiting_.insert(id);
    jobs_.push_control([this, id, group = std::move(group), done = std::move(done)]() mutable {
      if (waiting_.erase(id) == 0) return done(Choice{.kind = Choice::Kind::kStop});  // it is freed
      ScriptedRuntime::choose(id, std::move(group), std::move(done));
    });
  }
  void fork(Sequence parent, std::vector<Sequence> children) override {
    const EnoughMemory enough;
    ScriptedRuntime::fork(parent, std::move(children));
  }
  void free(Sequence id) override {
    const EnoughMemory enough;
    waiting_.erase(id);
    ScriptedRuntime::free(id);
  }

 private:
  void later(std::function<void()> job) {
    const EnoughMemory enough;
    if (!is_late_ || random_.one_in(2)) return job();
    jobs_.push_control(std::move(job));
  }
  void run() {
    for (;;) {
      std::vector<std::function<void()>> jobs = jobs_.wait_drain();
      if (jobs.empty()) return;  // it is closed
      for (std::function<void()>& job : jobs) {
        simulator_.pass(std::chrono::microseconds(random_.below(20'000)));
        job();
      }
    }
  }

  Simulator& simulator_;
  Random random_;
  const bool is_late_;
  std::set<Sequence> waiting_;  // for their choices
  BoundedQueue<std::function<void()>> jobs_{std::numeric_limits<std::size_t>::max()};
  runtime::Thread thread_;
};

}  // namespace lmtp::simulation
