// World: a server over models of the tests' FakeAgent, and clients that use it, by a seed.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "context.h"
#include "fake_factory.h"
#include "lmtp/registry/registry.h"
#include "simulator.h"

namespace lmtp::simulation {

// What a seed has clients do and what fails; about half of it is on.
struct Features {
  explicit Features(Random& random);
  std::string text() const;

  // What clients do.
  bool score, candidates, cancel, fork, backtrack, buffers, samples, timeouts, notices, questions;
  // What connections do.
  bool fragments, delays, stalls, disconnects;
  // What fails.
  bool failed_steps, failed_rows, lost_device, failed_loads, late_threads;
  // What the server is like.
  bool several_models, small_cache, host_blocks, score_cache, runs_ahead, few_requests,
      small_chunks, pacing, stops;
};

struct Options {
  std::uint64_t seed = 1;
  int num_clients = 0;        // 0: by the seed
  std::int64_t until_us = 0;  // clients begin nothing more then; 0: when they have done enough
  std::FILE* log = nullptr;
};

struct Counts {
  std::int64_t num_operations = 0;  // messages of clients
  std::int64_t num_streams = 0;
  std::int64_t num_tokens = 0;
  std::int64_t num_finished = 0;  // streams' samples, by "length" or "stop"
  std::int64_t num_bytes = 0;     // both ways
  std::int64_t num_steps = 0;
  std::int64_t num_faults = 0;  // of steps, rows, devices, loads, connections
  std::int64_t num_threads_changed = 0;
  std::int64_t virtual_us = 0;
  std::uint64_t log_hash = 0xCBF29CE484222325ULL;
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
  bool is_healed() const { return is_healed_; }
  bool has_stopped() const { return has_stopped_; }
  std::string model_name(Random& random) const;

  const Options options;
  Simulator simulator;
  Random random;
  const Features features;
  Counts counts;
  std::unique_ptr<registry::Registry> models;
  std::shared_ptr<server::ServerContext> context;
  int context_length = testing::kFakeContext;

 private:
  void run_main();
  server::ServerOptions server_options();
  std::unique_ptr<registry::Registry> make_models();
  Result<registry::ServedModel> find_model(const std::string& name);
  testing::FakeAgentOptions agent_options();
  void check_idle() const;
  void check_model(const registry::ModelStatus& model) const;

  Random faults_;
  bool is_healed_ = false;
  bool has_stopped_ = false;
  bool is_lost_ = false;
};

}  // namespace lmtp::simulation
