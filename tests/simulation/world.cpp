#include "world.h"

#include <algorithm>
#include <array>
#include <utility>

#include "client.h"
#include "timed_agent.h"

namespace lmtp::simulation {
namespace {

using std::chrono::microseconds;

constexpr microseconds kSecond{1'000'000};
// From the end of all faults on, for whatever runs or waits.
constexpr microseconds kHealedMax = 600 * kSecond;

}  // namespace

Features::Features(Random& random) {
  bool Features::*const all[] = {
      &Features::score,        &Features::candidates,     &Features::cancel,
      &Features::fork,         &Features::backtrack,      &Features::buffers,
      &Features::samples,      &Features::timeouts,       &Features::notices,
      &Features::questions,    &Features::fragments,      &Features::delays,
      &Features::stalls,       &Features::disconnects,    &Features::failed_steps,
      &Features::failed_rows,  &Features::lost_device,    &Features::failed_loads,
      &Features::late_threads, &Features::several_models, &Features::small_cache,
      &Features::host_blocks,  &Features::score_cache,    &Features::runs_ahead,
      &Features::few_requests, &Features::small_chunks,   &Features::pacing,
      &Features::stops};
  for (const auto feature : all) this->*feature = random.one_in(2);
}

std::string Features::text() const {
  const std::pair<const char*, bool> all[] = {{"score", score},
                                              {"candidates", candidates},
                                              {"cancel", cancel},
                                              {"fork", fork},
                                              {"backtrack", backtrack},
                                              {"buffers", buffers},
                                              {"samples", samples},
                                              {"timeouts", timeouts},
                                              {"notices", notices},
                                              {"questions", questions},
                                              {"fragments", fragments},
                                              {"delays", delays},
                                              {"stalls", stalls},
                                              {"disconnects", disconnects},
                                              {"failed_steps", failed_steps},
                                              {"failed_rows", failed_rows},
                                              {"lost_device", lost_device},
                                              {"failed_loads", failed_loads},
                                              {"late_threads", late_threads},
                                              {"several_models", several_models},
                                              {"small_cache", small_cache},
                                              {"host_blocks", host_blocks},
                                              {"score_cache", score_cache},
                                              {"runs_ahead", runs_ahead},
                                              {"few_requests", few_requests},
                                              {"small_chunks", small_chunks},
                                              {"pacing", pacing},
                                              {"stops", stops}};
  std::string text;
  for (const auto& [name, is_on] : all) {
    if (is_on) text += (text.empty() ? "" : " ") + std::string(name);
  }
  return text;
}

World::World(const Options& options_in)
    : options(options_in),
      simulator(options.seed),
      random(options.seed),
      features(random),
      faults_(options.seed ^ 0xFA17) {}

void World::log(const std::string& who, std::string_view what) {
  const std::string line =
      std::to_string(simulator.now_us()) + " " + who + " " + std::string(what) + "\n";
  for (const char c : line) {
    counts.log_hash = (counts.log_hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  }
  if (options.log != nullptr) std::fputs(line.c_str(), options.log);
}

void World::fail(const std::string& why) const {
  if (options.log != nullptr) std::fflush(options.log);
  simulation::fail("at " + std::to_string(simulator.now_us()) + " us: " + why +
                   "\nwith: " + features.text());
}

std::string World::model_name(Random& drawn) const {
  return features.several_models ? "m" + std::to_string(drawn.below(3)) : "m0";
}

Counts World::run() {
  simulator.run([this] { run_main(); });
  counts.num_threads_changed = simulator.num_switches();
  counts.virtual_us = simulator.now_us();
  return counts;
}

void World::run_main() {
  log("world", features.text());
  simulator.set_lateness(features.late_threads);
  models = make_models();
  context = std::make_shared<server::ServerContext>(server_options(), *models);
  context->dispatcher.encoder().start();
  const int num_clients = options.num_clients > 0 ? options.num_clients : random.between(2, 10);
  std::vector<std::unique_ptr<Client>> clients;
  std::vector<runtime::Thread> threads;
  int num_busy = num_clients;
  for (int i = 0; i < num_clients; ++i) {
    clients.push_back(std::make_unique<Client>(*this, i));
    threads.emplace_back(
        [this, &num_busy, client = clients.back().get()] { client->run([&] { --num_busy; }); });
  }
  while (num_busy > 0) simulator.pass(kSecond / 100);
  if (features.stops) {
    const int grace_ms = random.below(2) * random.below(2000);
    log("world", "stops within " + std::to_string(grace_ms) + " ms");
    has_stopped_ = true;
    models->stop(grace_ms);
  }
  log("world", "is healed");
  is_healed_ = true;
  simulator.set_lateness(false);
  const Clock::time_point due = simulator.now() + kHealedMax;
  for (runtime::Thread& thread : threads) thread.join();
  if (simulator.now() > due) fail("what ran did not end in time after the faults");
  simulator.pass(kSecond);  // for what is on its way
  check_idle();
  models->stop(0);
  context->dispatcher.encoder().stop();
  clients.clear();
  context.reset();
  models.reset();
}

server::ServerOptions World::server_options() {
  server::ServerOptions made;
  made.num_io_threads = 1;
  made.version = "0";
  if (features.stalls) made.max_write_queue_bytes = std::size_t{64} << 10;
  return made;
}

std::unique_ptr<registry::Registry> World::make_models() {
  auto factory = std::make_unique<testing::FakeFactory>(
      [this](const std::string& name) { return find_model(name); });
  if (!features.several_models) {
    registry::OnlyModel only;
    only.name = "m0";
    return std::make_unique<registry::Registry>(std::move(factory), std::move(only));
  }
  registry::AutoOptions made;
  made.max_models = 2;
  made.unload_after_ms = random.below(2) * random.between(100, 5000);
  made.default_model.name = "m0";
  return std::make_unique<registry::Registry>(std::move(factory), std::move(made));
}

// Also what a later loading of it has.
Result<registry::ServedModel> World::find_model(const std::string& name) {
  registry::ServedModel model = testing::fake_served_model(name);
  model.limits.context_length = context_length;
  engine::EngineOptions& made = model.options;
  made.debug.check_invariants = true;
  if (features.small_chunks) made.batch.max_tokens = 32;
  if (features.small_chunks) made.batch.max_sequences = 6;
  if (features.pacing) made.batch.pacing = AdmissionPacing{};
  if (features.few_requests) made.max_concurrent_requests = 24;
  if (features.score_cache) made.score_cache_bytes = std::int64_t{1} << 18;
  model.load = [this](std::int64_t, const scheduler::LoadProgress& progress)
      -> Result<std::unique_ptr<scheduler::ModelAgent>> {
    const int step_ms = faults_.between(1, 400);
    for (const int percent : {20, 60, 100}) {
      simulator.pass(microseconds(1000) * step_ms);
      if (!progress(percent)) return Error{ErrorCode::kStopping, "given up"};
    }
    // A server of one model would end.
    const bool may_fail = features.failed_loads && features.several_models && !is_healed_;
    if (may_fail && faults_.one_in(4)) {
      ++counts.num_faults;
      return Error{ErrorCode::kUnavailable, "this load fails"};
    }
    is_lost_ = false;
    return std::unique_ptr<scheduler::ModelAgent>(
        std::make_unique<TimedAgent>(agent_options(), simulator, faults_.bits()));
  };
  return model;
}

testing::FakeAgentOptions World::agent_options() {
  testing::FakeAgentOptions agent;
  agent.vocab_size = testing::kFakeVocabSize;
  agent.num_blocks = context_length / kBlockSize + (features.small_cache ? 8 : 300);
  agent.num_host_blocks = features.host_blocks ? 40 : 0;
  agent.fetch_time = std::chrono::microseconds(5);
  agent.runs_ahead = features.runs_ahead;
  agent.fails_in_forward = faults_.one_in(2);
  agent.before_step = [this](const scheduler::StepPlan&) -> Result<void> {
    ++counts.num_steps;
    if (is_healed_) return {};
    if (features.lost_device && faults_.one_in(1000)) is_lost_ = true;
    if (is_lost_ || (features.failed_steps && faults_.one_in(100))) {
      ++counts.num_faults;
      return Error{ErrorCode::kInternal, "this step fails"};
    }
    return {};
  };
  agent.is_lost = [this] { return is_lost_; };
  if (features.failed_rows) {
    agent.row_fails = [this](const scheduler::SlotState&) {
      const bool fails = !is_healed_ && faults_.one_in(500);
      counts.num_faults += fails ? 1 : 0;
      return fails;
    };
  }
  return agent;
}

void World::check_idle() const {
  for (const registry::ModelStatus& model : models->list()) check_model(model);
  if (context->registry.size() != 0) fail("connections are left");
  if (context->registry.num_clients() != 0) fail("clients are counted that are gone");
  // All of a limit can be had where nobody has anything.
  const std::pair<const char*, server::MemoryLimit*> limits[] = {
      {"buffers", &context->operation_limits.buffers},
      {"waiting", &context->operation_limits.waiting},
      {"read buffers", &context->read_buffers},
      {"write queues", &context->write_queues}};
  for (const auto& [name, limit] : limits) {
    server::MemoryLimit::Part all(*limit);
    if (!all.set(limit->max_bytes())) fail(std::string("bytes are left of: ") + name);
  }
}

void World::check_model(const registry::ModelStatus& model) const {
  const engine::EngineStats& stats = model.stats;
  const auto none = [&](const char* what, int count) {
    if (count == 0) return;
    fail(model.description.name + " is idle and has " + std::to_string(count) + " " + what);
  };
  none("streams that run", stats.num_running);
  none("streams that wait", stats.num_waiting);
  if (model.state != registry::ModelState::kReady) return;
  // Each request is counted once. Not where clients do not see how some of theirs end.
  const Features& on = features;
  if (!on.disconnects && !on.stalls && !on.candidates && !on.several_models) {
    std::int64_t num_finished = 0;
    for (const auto& tally : stats.metrics.num_finished) {
      num_finished += static_cast<std::int64_t>(tally.value());
    }
    if (num_finished != counts.num_finished) {
      fail(std::to_string(num_finished) + " finished streams are counted, and clients have had " +
           std::to_string(counts.num_finished));
    }
  }
  none("blocks in use", stats.num_blocks_pinned);
  none("blocks less than it had", stats.agent.num_blocks - 1 - stats.num_blocks_free -
                                      stats.num_blocks_evictable - stats.num_blocks_adapter);
}

}  // namespace lmtp::simulation
