#include "world.h"

#include <algorithm>
#include <array>
#include <utility>

#include "client.h"
#include "failing_allocations.h"
#include "late_runtime.h"
#include "lmtp/constraint/grammar_compiler.h"
#include "lmtp/engine/engine_metrics.h"
#include "lmtp/request/error_kind.h"
#include "timed_agent.h"

namespace lmtp::simulation {
namespace {

using std::chrono::microseconds;

constexpr microseconds kSecond{1'000'000};
constexpr std::pair<const char*, bool Features::*> kFeatures[] = {
    {"score", &Features::score},
    {"candidates", &Features::candidates},
    {"cancel", &Features::cancel},
    {"fork", &Features::fork},
    {"backtrack", &Features::backtrack},
    {"buffers", &Features::buffers},
    {"samples", &Features::samples},
    {"timeouts", &Features::timeouts},
    {"notices", &Features::notices},
    {"questions", &Features::questions},
    {"adapters", &Features::adapters},
    {"bad_words", &Features::bad_words},
    {"text", &Features::text},
    {"decide", &Features::decide},
    {"grammars", &Features::grammars},
    {"controllers", &Features::controllers},
    {"fragments", &Features::fragments},
    {"delays", &Features::delays},
    {"stalls", &Features::stalls},
    {"disconnects", &Features::disconnects},
    {"newcomers", &Features::newcomers},
    {"failed_steps", &Features::failed_steps},
    {"failed_rows", &Features::failed_rows},
    {"lost_device", &Features::lost_device},
    {"failed_loads", &Features::failed_loads},
    {"late_threads", &Features::late_threads},
    {"no_memory", &Features::no_memory},
    {"several_models", &Features::several_models},
    {"small_cache", &Features::small_cache},
    {"host_blocks", &Features::host_blocks},
    {"score_cache", &Features::score_cache},
    {"runs_ahead", &Features::runs_ahead},
    {"few_requests", &Features::few_requests},
    {"small_chunks", &Features::small_chunks},
    {"pacing", &Features::pacing},
    {"stops", &Features::stops},
    {"few_places", &Features::few_places},
};
// Drawn apart, so that what seeds have found before stays what it was.
constexpr std::pair<const char*, bool Features::*> kLaterFeatures[] = {
    {"chats", &Features::chats},
    {"detokenize", &Features::detokenize},
    {"modules", &Features::modules},
};
// Its calls are those of "hermes".
constexpr const char* kChatTemplate = R"(
{%- for message in messages %}
  {{- '[' + message.role + ']' + (message.content or '') + '\n' }}
  {%- for call in message.tool_calls or [] %}
    {{- '<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}
    {{- call.function.arguments | tojson + '}\n</tool_call>\n' }}
  {%- endfor %}
{%- endfor %}
{%- for tool in tools or [] %}{{ '(' + tool.function.name + ')' }}{% endfor %}
{%- if add_generation_prompt %}[assistant]{% endif %})";
// From the end of all faults on, for whatever runs or waits.
constexpr microseconds kHealedMax = 600 * kSecond;

}  // namespace

Features::Features(Random& random) {
  for (const auto& [name, feature] : kFeatures) this->*feature = random.one_in(2);
  Random later = random;
  for (const auto& [name, feature] : kLaterFeatures) this->*feature = later.one_in(2);
}

std::string Features::names() const {
  std::string names;
  const auto add = [&](const auto& features) {
    for (const auto& [name, feature] : features) {
      if (this->*feature) names += (names.empty() ? "" : " ") + std::string(name);
    }
  };
  add(kFeatures);
  add(kLaterFeatures);
  return names;
}

World::World(const Options& options_in)
    : options(options_in),
      simulator(options.seed),
      random(options.seed),
      features(random),
      faults_(options.seed ^ 0xFA17),
      num_requests_max_(faults_.between(6, 30)) {
  if (!features.adapters || features.several_models) return;
  for (const char* const name : {"a0", "a1", "a2", "a3"}) {
    adapters_.push_back(testing::fake_adapter(name, faults_.between(1, 3)));
  }
}

void World::log(const std::string& who, std::string_view what) {
  const std::string line =
      std::to_string(simulator.now_us()) + " " + who + " " + std::string(what) + "\n";
  for (const char c : line) {
    counts.log_hash = (counts.log_hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  }
  if (options.log != nullptr) std::fputs(line.c_str(), options.log);
}

void World::fail(const std::string& why) const {
  simulation::fail("at " + std::to_string(simulator.now_us()) + " us: " + why +
                   "\nwith: " + features.names());
}

// Adapters are of a server of one model.
std::string World::model_name(Random& drawn) const {
  if (!adapters_.empty() && drawn.one_in(2)) {
    return adapters_[static_cast<std::size_t>(drawn.below(static_cast<int>(adapters_.size())))]
        ->name();
  }
  return features.several_models ? "m" + std::to_string(drawn.below(3)) : "m0";
}

const Adapter* World::find_adapter(const std::string& name) const {
  const auto at = std::ranges::find(adapters_, name, [](const auto& one) { return one->name(); });
  return at == adapters_.end() ? nullptr : at->get();
}

bool World::has_failed(Fault fault, Clock::time_point since) const {
  if (fault == Fault::kMemory && num_armed_steps_ > 0) return true;
  if (fault == Fault::kLost && is_lost_) return true;  // until the model is loaded again
  const auto last = last_faults_.find(fault);
  return last != last_faults_.end() && last->second >= since;
}

// A connection beside others may have three quarters of them.
bool World::may_be_overloaded(Clock::time_point since, int num_own) const {
  return features.few_requests && demand.most_since(since) - num_own >= num_requests_max_ * 3 / 4;
}

void World::fail_on_purpose(Fault fault) {
  ++counts.num_faults;
  last_faults_[fault] = simulator.now();
}

Counts World::run() {
  simulator.run([this] { run_main(); });
  counts.num_threads_changed = simulator.num_switches();
  counts.virtual_us = simulator.now_us();
  return counts;
}

void World::run_main() {
  log("world", features.names());
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
        [&num_busy, client = clients.back().get()] { client->run([&] { --num_busy; }); });
  }
  while (num_busy > 0) simulator.pass(kSecond / 100);
  if (features.stops) {
    const bool has_grace = random.below(2) > 0;
    const int grace_ms = random.below(2000) * (has_grace ? 1 : 0);
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
  made.aici = features.controllers;
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
  const bool unloads = random.below(2) > 0;
  made.unload_after_ms = random.between(100, 5000) * (unloads ? 1 : 0);
  made.default_model.name = "m0";
  return std::make_unique<registry::Registry>(std::move(factory), std::move(made));
}

// Also what a later loading of it has.
Result<registry::ServedModel> World::find_model(const std::string& name) {
  registry::ServedModel model = testing::fake_served_model(name);
  model.limits.context_length = context_length;
  engine::EngineOptions& made = model.options;
  made.debug.check_invariants = checks("checks");
  if (features.small_chunks) made.batch.max_tokens = 32;
  if (features.small_chunks) made.batch.max_sequences = 6;
  if (features.few_places) made.batch.max_sequences = faults_.between(2, 4);
  if (features.pacing) made.batch.pacing = AdmissionPacing{};
  if (features.few_requests) made.max_concurrent_requests = num_requests_max_;
  if (features.late_threads) made.mask_wait_ms = faults_.below(3);
  if (!adapters_.empty()) {
    made.batch.max_adapters = faults_.between(1, 3);
    model.adapters_max = 3;  // one fewer than there are
    for (const auto& adapter : adapters_) model.adapters.push_back({adapter->name(), "folder"});
    model.load_adapter = [this](const AdapterSource& source, const registry::AdapterReading&) {
      return load_adapter(source);
    };
  }
  if (features.controllers) {
    model.load_controllers = [this](const auto&) -> registry::LoadedControllers {
      const auto on_problem = [this](const std::string& what) { fail("controllers: " + what); };
      return std::shared_ptr<aici::Runtime>(std::make_shared<LateRuntime>(
          simulator, faults_.bits(), features.late_threads, on_problem));
    };
  }
  if (features.chats) {
    model.load_chat_template = [](const auto& texts) {
      return text::ChatTemplate::make({.templates = {{"default", kChatTemplate}}}, texts);
    };
  }
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
      fail_on_purpose(Fault::kLoad);
      return Error{ErrorCode::kUnavailable, "this load fails"};
    }
    if (std::exchange(is_lost_, false)) last_faults_[Fault::kLost] = simulator.now();
    // Compilers differ in the order of a call's arguments.
    const std::uint64_t seed = faults_.bits();
    return std::unique_ptr<scheduler::ModelAgent>(std::make_unique<TimedAgent>(
        agent_options(), simulator, seed, [this] { end_step(); }, [this] { disarm(); }));
  };
  return model;
}

Result<std::shared_ptr<const Adapter>> World::load_adapter(const AdapterSource& source) {
  simulator.pass(microseconds(1000) * faults_.below(50));
  const auto at =
      std::ranges::find(adapters_, source.name, [](const auto& one) { return one->name(); });
  if (at == adapters_.end()) return Error{ErrorCode::kNotFound, "no such adapter"};
  return *at;
}

// On the engine's thread: no allocation fails any more.
void World::disarm() {
  if (num_armed_steps_ == 0 || armed_ != simulator.current()) return;
  int& left = testing::allocations_left;
  if (left == 0) fail_on_purpose(Fault::kMemory);
  left = num_armed_steps_ = 0;
  last_faults_[Fault::kMemory] = simulator.now();
}

// On the engine's thread: an allocation of its next steps fails, or of its end.
void World::end_step() {
  if (num_armed_steps_ > 0 && armed_ != simulator.current()) return;
  if (num_armed_steps_ > 0) {
    if (testing::allocations_left == 0 || ++num_armed_steps_ > 4) disarm();
  }
  // An engine that starts over without memory ends the process.
  const auto last = last_faults_.find(Fault::kMemory);
  if (last != last_faults_.end() && simulator.now() - last->second < kSecond / 50) return;
  if (!features.no_memory || is_healed_ || num_armed_steps_ > 0) return;
  if (!faults_.one_in(is_lost_ ? 2 : 30)) return;
  // The first ones are those of a delivery.
  testing::allocations_left = faults_.between(1, faults_.one_in(2)   ? 10
                                                 : faults_.one_in(2) ? 3
                                                                     : 200);
  num_armed_steps_ = 1;
  armed_ = simulator.current();
}

testing::FakeAgentOptions World::agent_options() {
  testing::FakeAgentOptions agent;
  agent.vocab_size = testing::kFakeVocabSize;
  agent.num_blocks = context_length / kBlockSize + (features.small_cache ? 8 : 300);
  agent.num_host_blocks = features.host_blocks ? 40 : 0;
  agent.fetch_time = std::chrono::microseconds(5);
  agent.runs_ahead = features.runs_ahead;
  agent.checks_cache = checks("agent");
  agent.fails_in_forward = faults_.one_in(2);
  agent.before_step = [this](const scheduler::StepPlan&) -> Result<void> {
    ++counts.num_steps;
    if (is_healed_) return {};
    if (features.lost_device && faults_.one_in(400)) is_lost_ = true;
    if (is_lost_ || (features.failed_steps && faults_.one_in(100))) {
      fail_on_purpose(is_lost_ ? Fault::kLost : Fault::kStep);
      return Error{ErrorCode::kInternal, "this step fails"};
    }
    return {};
  };
  agent.is_lost = [this] { return is_lost_; };
  if (features.failed_rows) {
    agent.row_fails = [this](const scheduler::SlotState&) {
      const bool fails = !is_healed_ && faults_.one_in(500);
      if (fails) fail_on_purpose(Fault::kRow);
      return fails;
    };
  }
  return agent;
}

void World::check_idle() const {
  if (!checks("accounts")) return;
  for (const registry::ModelStatus& model : models->list()) check_model(model);
  check_counts();
  if (context->registry.size() != 0) fail("connections are left");
  if (context->registry.num_clients() != 0) fail("clients are counted that are gone");
  // All of a limit can be had where nobody has anything.
  const std::pair<const char*, MemoryLimit*> limits[] = {
      {"buffers", &context->operation_limits.buffers},
      {"waiting", &context->operation_limits.waiting},
      {"read buffers", &context->read_buffers},
      {"write queues", &context->write_queues}};
  for (const auto& [name, limit] : limits) {
    MemoryLimit::Part all(*limit);
    if (!all.set(limit->max_bytes())) fail(std::string("bytes are left of: ") + name);
  }
}

// Each request is counted once, by how it has ended; where clients do not see how some of theirs
// end, at least those of which they do.
void World::check_counts() const {
  if (features.several_models) return;  // one that is unloaded takes its counts along
  const bool sees_all = !features.disconnects && !features.stalls && !features.candidates &&
                        !features.decide && !features.newcomers && !is_doubtful;
  // An end that could not be delivered was counted as what it was, and is told as internal.
  const auto name_of = [this](const std::string& name) -> std::string {
    if (features.no_memory) return "ended";
    return name == "timeout" ? "cancelled" : name;  // which it is for an engine
  };
  std::map<std::string, std::int64_t> counted;
  std::map<std::string, std::int64_t> had;
  std::map<std::string, std::int64_t> refused_forks;
  for (const auto& [code, num] : ends) had[name_of(code)] += num;
  for (const auto& [code, num] : num_refused_forks) refused_forks[name_of(code)] += num;
  const auto models_now = models->list();
  for (std::size_t i = 0; i < engine::kNumErrorCodes; ++i) {
    const auto code = static_cast<ErrorCode>(i);
    std::int64_t& num = counted[name_of(std::string(error_kind(code).lmtp_code))];
    num += static_cast<std::int64_t>(models->refusals().count(code));
    for (const registry::ModelStatus& model : models_now) {
      num += static_cast<std::int64_t>(model.stats.metrics.num_failed[i].value());
    }
  }
  for (std::size_t i = 1; i < engine::kFinishNames.size(); ++i) {
    for (const registry::ModelStatus& model : models_now) {
      counted[name_of(std::string(engine::kFinishNames[i]))] +=
          static_cast<std::int64_t>(model.stats.metrics.num_finished[i].value());
    }
  }
  for (const auto& [code, num] : counted) {
    if (num >= had[code] && (!sees_all || num <= had[code] + refused_forks[code])) continue;
    fail(std::to_string(num) + " requests are counted as " + code + ", and clients have had " +
         std::to_string(had[code]));
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
  none("blocks in use", stats.num_blocks_pinned);
  none("blocks less than it had", stats.agent.num_blocks - 1 - stats.num_blocks_free -
                                      stats.num_blocks_evictable - stats.num_blocks_adapter);
}

}  // namespace lmtp::simulation
