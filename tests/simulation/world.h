// World: a server over models of the tests' FakeAgent, and clients that use it, by a seed.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context.h"
#include "fake_factory.h"
#include "lmtp/registry/registry.h"
#include "simulator.h"

namespace lmtp::simulation {

// What a seed has clients do and what fails; about half of it is on.
struct Features {
  explicit Features(Random& random);
  std::string names() const;

  // What clients do.
  bool score, candidates, cancel, fork, backtrack, buffers, samples, timeouts, notices, questions,
      adapters, bad_words, text, decide, grammars, controllers;
  // What connections do.
  bool fragments, delays, stalls, disconnects, newcomers;
  // What fails.
  bool failed_steps, failed_rows, lost_device, failed_loads, late_threads, no_memory;
  // What the server is like.
  bool several_models, small_cache, host_blocks, score_cache, runs_ahead, few_requests,
      small_chunks, pacing, stops, few_places;
  // What came later (world.cpp).
  bool chats, detokenize, modules;
};

struct Options {
  std::uint64_t seed = 1;
  int num_clients = 0;        // 0: by the seed
  std::int64_t until_us = 0;  // clients begin nothing more then; 0: when they have done enough
  std::FILE* log = nullptr;
  std::string without;  // an oracle that is not asked; empty: all are
};

struct Counts {
  std::int64_t num_operations = 0;  // messages of clients
  std::int64_t num_streams = 0;
  std::int64_t num_tokens = 0;
  std::int64_t num_bytes = 0;  // both ways
  std::int64_t num_steps = 0;
  std::int64_t num_faults = 0;        // of steps, rows, devices, loads, connections
  std::int64_t num_steps_waited = 0;  // at most, by a stream
  std::int64_t num_steps_of_all = 0;  // by all of a connection
  std::int64_t num_threads_changed = 0;
  std::int64_t virtual_us = 0;
  std::uint64_t log_hash = 0xCBF29CE484222325ULL;
};

// What fails on purpose.
enum class Fault { kStep, kRow, kLost, kLoad, kMemory };

// How many requests the server may have at a time, as clients know it.
class Demand {
 public:
  void add(Clock::time_point now, int change) {
    while (!lost_.empty() && lost_.front().first <= now) {
      num_ -= lost_.front().second;
      lost_.pop_front();
    }
    num_ += change;
    history_.emplace_back(now, num_);
  }
  // They end with their connection, or are not known any more: the server has them for a while.
  void lose(Clock::time_point now, int num) {
    lost_.emplace_back(now + std::chrono::seconds(10), num);
  }
  int most_since(Clock::time_point time) const {
    int most = 0;
    for (auto at = history_.rbegin(); at != history_.rend(); ++at) {
      most = std::max(most, at->second);
      if (at->first < time) break;
    }
    return most;
  }

 private:
  int num_ = 0;
  std::deque<std::pair<Clock::time_point, int>> history_;
  std::deque<std::pair<Clock::time_point, int>> lost_;
};

// Owner: run(). Threads of the simulation.
class World {
 public:
  explicit World(const Options& options);

  // Runs all of it. What is not as it should be ends the process (simulator.h).
  Counts run();

  // What happens, in its order: the same for the same seed.
  void log(const std::string& who, std::string_view what);
  [[noreturn]] void fail(const std::string& why) const;
  // Whether this oracle is asked (docs/simulation.md).
  bool checks(std::string_view oracle) const { return options.without != oracle; }
  bool is_healed() const { return is_healed_; }
  bool has_stopped() const { return has_stopped_; }
  std::string model_name(Random& random) const;
  // The adapter of that name; null: it is a model's.
  const Adapter* find_adapter(const std::string& name) const;
  // Since then.
  bool has_failed(Fault fault, Clock::time_point since) const;
  // Whether a request that was sent then may be refused, beside those of `num_own`.
  bool may_be_overloaded(Clock::time_point since, int num_own) const;

  const Options options;
  Simulator simulator;
  Random random;
  const Features features;
  Counts counts;
  Demand demand;
  // How what clients have asked for has ended, by finish_reason or code.
  std::map<std::string, std::int64_t> ends;
  std::map<std::string, std::int64_t> num_refused_forks;  // by code; they may be counted
  std::map<std::string, std::string> decisions;           // what was answered to which question
  bool is_doubtful = false;                               // clients don't know of all ends
  std::unique_ptr<registry::Registry> models;
  std::shared_ptr<server::ServerContext> context;
  const testing::FakeTokenizer tokenizer{testing::kFakeVocabSize, false};
  int context_length = testing::kFakeContext;

 private:
  void run_main();
  server::ServerOptions server_options();
  std::unique_ptr<registry::Registry> make_models();
  Result<registry::ServedModel> find_model(const std::string& name);
  testing::FakeAgentOptions agent_options();
  Result<std::shared_ptr<const Adapter>> load_adapter(const AdapterSource& source);
  void end_step();
  void disarm();
  void fail_on_purpose(Fault fault);
  void check_idle() const;
  void check_counts() const;
  void check_model(const registry::ModelStatus& model) const;

  Random faults_;
  std::map<Fault, Clock::time_point> last_faults_;
  const int num_requests_max_;  // where there are few
  bool is_healed_ = false;
  bool has_stopped_ = false;
  bool is_lost_ = false;
  int num_armed_steps_ = 0;  // of an engine whose memory is to run out; 0: none
  std::uint64_t armed_ = 0;  // its thread
  std::vector<std::shared_ptr<const Adapter>> adapters_;
};

}  // namespace lmtp::simulation
