// The pool's workers: which there are, what they say of themselves, and when they are used.
#include <algorithm>
#include <utility>

#include "lmtp/base/log.h"
#include "lmtp/engine/refusals.h"
#include "pool.h"

namespace lmtp::balance {
namespace {

constexpr std::chrono::milliseconds kKeepInterval{50};

}  // namespace

bool Worker::is_up() const {
  const auto is_open = [](const auto& lane) { return lane->is_open; };
  return error.empty() && info && info->is_ready() && std::ranges::any_of(lanes, is_open);
}

Pool::Pool(BalanceOptions options, registry::RefusalCounts& refusals)
    : options_(std::move(options)), refusals_(refusals) {
  for (const WorkerAddress& address : options_.workers) {
    auto worker = std::make_unique<Worker>();
    worker->index = workers_.size();
    worker->name = address.name();
    for (int i = 0; i < options_.connections; ++i) {
      worker->lanes.push_back(std::make_unique<Lane>());
      worker->lanes.back()->worker = worker.get();
    }
    workers_.push_back(std::move(worker));
  }
}

Pool::~Pool() { stop(0); }

void Pool::begin() {
  const std::lock_guard lock(mutex_);
  for (const auto& worker : workers_) {
    for (const auto& lane : worker->lanes) {
      Link::Callbacks callbacks;
      callbacks.on_info = [this, to = lane.get()](const std::string& json) {
        return on_info(*to, json);
      };
      callbacks.on_entries = [this, to = lane.get()](auto& entries) {
        return on_entries(*to, entries);
      };
      callbacks.on_lost = [this, to = lane.get()](const Error& error) { on_lost(*to, error); };
      lane->link = std::make_unique<Link>(options_, worker->index, std::move(callbacks));
    }
  }
  keeper_ = std::thread([this] { keep(); });
}

std::optional<Result<void>> Pool::start(int wait_ms) {
  std::unique_lock lock(mutex_);
  std::optional<Result<void>> outcome;
  changed_.wait_for(lock, std::chrono::milliseconds(wait_ms),
                    [&] { return (outcome = outcome_of_start()).has_value(); });
  if (!outcome || !*outcome) return outcome;
  for (const auto& worker : workers_) {
    if (!worker->info || !worker->info->is_ready()) {
      log::warning("worker " + worker->name + " is not there yet; it is used when it is");
    } else if (!limits_) {
      limits_ = worker->info->status.limits;
      model_ = worker->info->status.description;
      model_worker_ = worker->name;
    }
  }
  return outcome;
}

// Nothing: not all have been tried, or one is loading and none is ready.
std::optional<Result<void>> Pool::outcome_of_start() const {
  const Worker* first = nullptr;
  bool is_loading = false;
  std::string errors;
  for (const auto& worker : workers_) {
    if (!worker->was_tried) return std::nullopt;
    if (!worker->info) {
      errors += (errors.empty() ? "" : "; ") + worker->name + ": " + worker->error;
      continue;
    }
    is_loading |= worker->info->status.state == registry::ModelState::kLoading;
    if (!worker->info->is_ready()) continue;
    if (first == nullptr) first = worker.get();
    Result<void> same = check_same(first->info->status.limits, first->name,
                                   worker->info->status.limits, worker->name);
    if (!same) return same;
  }
  if (first != nullptr) return Result<void>();
  const auto waited = Clock::now() - began_;
  if (is_loading || waited < std::chrono::milliseconds(options_.worker_timeout_ms)) {
    return std::nullopt;
  }
  return Result<void>(
      Error{ErrorCode::kUnavailable, "no worker is ready (" +
                                         (errors.empty() ? "none has a model" : errors) +
                                         "); start lmtp-serve there, or name others"});
}

Result<bool> Pool::on_info(Lane& lane, const std::string& json) {
  Result<WorkerInfo> info = parse_worker_info(json);
  Turn turn(mutex_);
  Worker& worker = *lane.worker;
  lane.last_heard = Clock::now();
  worker.was_tried = true;
  const bool was_usable = can_take(lane);
  Result<void> usable = info ? Result<void>() : Result<void>(info.error());
  if (info && Clock::now() < worker.shunned_until) {
    usable = Error{ErrorCode::kUnavailable, worker.error};
  } else if (info && info->is_ready() && limits_) {
    usable = check_same(*limits_, model_worker_, info->status.limits, worker.name);
  }
  if (!usable) {
    if (worker.error != usable.error().message) {
      log::warning("worker " + worker.name + " is not used: " + usable.error().message);
    }
    worker.error = usable.error().message;
    close(lane, turn);
    changed_.notify_all();
    return usable.error();
  }
  const bool was_up = worker.is_up();
  take_info(lane, *std::move(info));
  if (!was_up && worker.is_up()) warn_of_differences(worker);
  if (!was_usable && can_take(lane)) place_waiting(turn);
  changed_.notify_all();
  return worker.info->is_ready();
}

void Pool::take_info(Lane& lane, WorkerInfo info) {
  Worker& worker = *lane.worker;
  const engine::EngineStats before =
      worker.info ? worker.info->status.stats : engine::EngineStats();
  engine::EngineStats& stats = info.status.stats;
  if (!worker.reports(lane)) {
    engine::EngineStats kept = before;
    kept.agent = stats.agent;
    stats = std::move(kept);
  } else if (stats.num_steps < before.num_steps) {
    add_counters(before, worker.past);  // another process: its counters begin anew
  }
  // What the score cache answers takes no step.
  if (stats.num_steps != before.num_steps || stats.num_cached_scores != before.num_cached_scores) {
    worker.worked = Clock::now();
  }
  lane.numerics = stats.agent.numerics;
  lane.is_open = true;
  lane.is_leaving = info.status.state == registry::ModelState::kStopping;
  worker.error.clear();
  worker.info = std::move(info);
}

void Pool::warn_of_differences(const Worker& worker) {
  const auto differs = [&](const Worker& other, const char* what) {
    log::warning("workers " + worker.name + " and " + other.name + " differ in " + what);
  };
  for (const auto& other : workers_) {
    if (other.get() == &worker || !other->info || !other->info->is_ready()) continue;
    const registry::ModelStatus& one = worker.info->status;
    const registry::ModelStatus& its = other->info->status;
    if (one.description.name != its.description.name) {
      return differs(*other, "the model's name: requests that name it are served by one alone");
    }
    if (one.stats.agent.numerics != its.stats.agent.numerics) {
      return differs(*other,
                     "numerics (weights, version, dtype or hardware): a stream that is lost on one "
                     "cannot be continued on the other");
    }
  }
}

void Pool::on_lost(Lane& lane, const Error& error) {
  Turn turn(mutex_);
  Worker& worker = *lane.worker;
  worker.was_tried = true;
  if (error.code == ErrorCode::kInvalid) shun(worker, error.message);  // not LMTP
  if (worker.error.empty() && !worker.info) worker.error = error.message;
  const bool was_open = lane.is_open;
  close(lane, turn);
  const auto is_open = [](const auto& other) { return other->is_open; };
  if (was_open && !stopping_ && std::ranges::none_of(worker.lanes, is_open)) {
    log::warning("worker " + worker.name + " is lost: " + error.message);
  }
  changed_.notify_all();
}

// It has sent nonsense: nothing that it says is believed for a while.
void Pool::shun(Worker& worker, const std::string& why) {
  log::warning("worker " + worker.name + " is left alone for a while: " + why);
  worker.error = why;
  worker.shunned_until = Clock::now() + std::chrono::milliseconds(options_.shun_ms);
}

// A link may be stuck in a write to a worker that has stopped reading; and a worker may answer
// MODEL_INFO although it computes nothing any more.
void Pool::drop_silent(Turn& turn) {
  const auto now = Clock::now();
  const std::chrono::milliseconds silence_max(options_.silence_timeout_ms);
  for (const auto& worker : workers_) {
    for (const auto& lane : worker->lanes) {
      if (!lane->is_open || now - lane->last_heard < silence_max) continue;
      log::warning("worker " + worker->name + " says nothing any more");
      lane->link->drop("it says nothing");
      close(*lane, turn);
    }
    if (!worker->is_up() || worker->num_streams == 0) worker->worked = now;
    const std::chrono::milliseconds stalled_max(options_.stall_timeout_ms);
    if (stalled_max.count() == 0 || now - worker->worked < stalled_max) continue;
    shun(*worker, "it has " + std::to_string(worker->num_streams) +
                      " streams from here and has computed no step for " +
                      std::to_string(stalled_max.count()) + " ms");
    for (const auto& lane : worker->lanes) {
      lane->link->drop(worker->error);
      close(*lane, turn);
    }
  }
}

void Pool::keep() {
  for (;;) {
    {
      Turn turn(mutex_);
      changed_.wait_for(turn.lock(), kKeepInterval, [this] { return ended_; });
      if (ended_) return;
      expire(turn);
      drop_silent(turn);
    }
  }
}

void Pool::stop(int grace_ms) {
  {
    Turn turn(mutex_);
    if (std::exchange(stopping_, true)) return;
    for (const auto& [key, stream] : streams_) {
      if (!stream->request().wants_notices) continue;
      turn.queue_event(stream->request(), StreamNotice{key.stream, key.sample,
                                                       StreamNotice::Kind::kDraining, 0, grace_ms});
    }
  }
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(grace_ms),
                      [this] { return streams_.empty(); });
  }
  {
    Turn turn(mutex_);
    ended_ = true;
    std::vector<StreamPtr> left;
    for (const auto& [key, stream] : streams_) left.push_back(stream);
    for (const StreamPtr& stream : left) fail(stream, engine::shutting_down(), turn);
  }
  changed_.notify_all();
  if (keeper_.joinable()) keeper_.join();
  for (const auto& worker : workers_) {
    for (const auto& lane : worker->lanes) {
      if (lane->link) lane->link->begin_stop();
    }
  }
  for (const auto& worker : workers_) {
    for (const auto& lane : worker->lanes) {
      if (lane->link) lane->link->stop();
    }
  }
}

bool Pool::is_stopping() const {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

bool Pool::is_ready() const {
  const std::lock_guard lock(mutex_);
  return !stopping_ && limits_ &&
         std::ranges::any_of(workers_, [](const auto& worker) { return worker->is_up(); });
}

std::optional<engine::ModelLimits> Pool::limits() const {
  const std::lock_guard lock(mutex_);
  return limits_;
}

std::string Pool::model_name() const {
  const std::lock_guard lock(mutex_);
  return model_.name;
}

bool Pool::has_adapter(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(workers_, [&](const auto& worker) {
    if (!worker->info) return false;
    const auto& adapters = worker->info->status.adapters;
    return std::ranges::find(adapters, name, &AdapterSource::name) != adapters.end();
  });
}

registry::ModelStatus Pool::status() const {
  const std::lock_guard lock(mutex_);
  registry::ModelStatus status;
  status.description = model_;
  if (limits_) status.limits = *limits_;
  status.state = registry::ModelState::kFailed;
  status.error = "no worker answers";
  engine::EngineStats& stats = status.stats;
  stats.metrics = metrics_;
  std::optional<std::string> numerics;
  for (const auto& worker : workers_) {
    registry::WorkerStatus& shown = status.workers.emplace_back();
    shown.name = worker->name;
    shown.state = "down";
    add_counters(worker->past, stats);
    if (!worker->info) continue;
    const registry::ModelStatus& its = worker->info->status;
    add_counters(its.stats, stats);
    const bool is_open =
        std::ranges::any_of(worker->lanes, [](const auto& lane) { return lane->is_open; });
    if (!is_open || !worker->error.empty()) continue;
    shown.state = worker->info->state;
    shown.progress_percent = its.progress_percent;
    shown.num_running = its.stats.num_running;
    shown.num_waiting = its.stats.num_waiting;
    shown.num_blocks_free = its.stats.num_blocks_free;
    add_gauges(its.stats, stats);
    if (status.adapters.empty()) status.adapters = its.adapters;
    if (!worker->is_up()) continue;
    status.state = registry::ModelState::kReady;
    status.progress_percent = 100;
    status.error.clear();
    const scheduler::AgentInfo& agent = its.stats.agent;
    stats.agent.device = agent.device;
    stats.agent.dtype = agent.dtype;
    stats.agent.kv_dtype = agent.kv_dtype;
    stats.agent.num_parameters = agent.num_parameters;
    stats.agent.numerics =
        numerics.value_or(agent.numerics) == agent.numerics ? agent.numerics : "";
    numerics = stats.agent.numerics;
  }
  stats.num_waiting += static_cast<int>(waiting_.size());
  if (stopping_) status.state = registry::ModelState::kStopping;
  return status;
}

}  // namespace lmtp::balance
