#include "lmtp/engine/engine.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "inbox.h"
#include "lmtp/base/check.h"
#include "lmtp/base/guarded.h"
#include "lmtp/base/log.h"
#include "lmtp/scheduler/scheduler.h"
#include "outbox.h"
#include "queue_notices.h"
#include "scheduling.h"
#include "step_pace.h"
#include "steps_in_flight.h"
#include "stream_record.h"
#include "stream_times.h"

namespace lmtp::engine {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kGatherTimeMax{5};

// All members below "engine thread" belong to that thread alone.
struct Engine::Impl {
  Impl(std::unique_ptr<scheduler::ModelAgent> agent_in, ModelLimits limits_in,
       EngineOptions options_in, OnLost on_lost_in, const EngineCounters& counters)
      : limits(std::move(limits_in)),
        options(options_in),
        on_lost(std::move(on_lost_in)),
        inbox(std::make_shared<EngineInstance::Inbox>(
            static_cast<std::size_t>(options.max_concurrent_requests), counters)),
        agent(std::move(agent_in)),
        scheduler(make_scheduler(agent->info(), limits, options, counters)) {}

  void run();
  std::vector<Request> close();
  void start_over(const std::string& why);
  void gather();
  void take_commands();
  void step();
  void start(const scheduler::StepPlan& plan);
  void start_ahead();
  Result<void> finish();

  void apply_all(std::vector<EngineCommand> commands);
  void apply_one(EngineCommand& command);
  void apply(Request& request);
  void apply(CancelCommand& cancel);
  void apply(StopCommand& stop);
  void apply(Backtrack& command);
  void begin_fork(const Request& request);
  void accept(Request request);
  void fail_all(const Error& error);

  bool finished() const { return lost || (stop_at && streams.empty()); }
  int num_requests() const { return static_cast<int>(streams.size()); }
  void publish();
  void queue_events(std::span<scheduler::SchedulerEvent> events, Clock::time_point now);
  void queue_error(StreamKey key, const std::shared_ptr<EventSink>& sink, const Error& error);
  void refuse(const Request& request, const Error& error);
  void queue_notices(const scheduler::StepPlan& plan, Clock::time_point now);
  void tell_draining(Clock::duration grace);
  void deliver();

  const ModelLimits limits;
  const EngineOptions options;
  const OnLost on_lost;
  const std::shared_ptr<EngineInstance::Inbox> inbox;

  std::thread thread;
  std::mutex stop_mutex;

  // Engine thread.
  struct Stream {
    std::shared_ptr<EventSink> sink;
    StreamRecord record;
    bool wants_notices = false;
    bool has_gap = false;  // tokens of it could not be delivered: it is being cancelled
  };
  using Streams = std::unordered_map<StreamKey, Stream, StreamKeyHash>;
  Streams streams;
  void end_with_error(Streams::iterator at, const Error& error);
  void end_stream(Streams::iterator at);
  EngineMetrics& metrics = inbox->stats.metrics;  // which others read at any time
  Outbox outbox;                                  // of this step or drain, not yet delivered
  std::unique_ptr<scheduler::ModelAgent> agent;
  std::unique_ptr<scheduler::Scheduler> scheduler;
  std::optional<Clock::time_point> stop_at;
  bool lost = false;  // the agent's device
  bool stopped = false;
  StepPace pace;
  QueueNotices queue;
  StreamTimes times;
  StepsInFlight steps{limits.vocab_size, options.mask_wait_ms};
  Clock::time_point last_finish;
  std::int64_t num_steps = inbox->stats.num_steps;
  std::int64_t num_steps_ahead = inbox->stats.num_steps_ahead;
  std::int64_t num_failed_steps = inbox->stats.num_failed_steps;
  Clock::time_point busy_since;  // what is not yet in `busy`
  Clock::duration busy = std::chrono::microseconds(inbox->stats.busy_us);
  std::chrono::nanoseconds device_wait = std::chrono::microseconds(inbox->stats.device_wait_us);
  std::random_device random;
};

// What the last step gave is delivered while this one runs; where the agent runs ahead, this one
// has been started by the last, and the next one is started as well.
void Engine::Impl::step() {
  if (steps.empty()) {
    const scheduler::StepPlan& plan = scheduler->plan(pace.limits(options.debug));
    if (plan.empty()) {
      // Sequences that can never run would make this loop spin: an error of ours, but not fatal.
      log::error("the scheduler found no way to go on");
      fail_all({ErrorCode::kInternal, "internal: the scheduler found no way to go on"});
      return;
    }
    start(plan);
  }
  if (steps.waits_for_masks(*agent)) {
    deliver();
    steps.choose(*agent);
  }
  start_ahead();
  deliver();
  const Result<void> done = finish();
  if (done) {
    device_wait += steps.result().device_wait;
    queue_events(scheduler->commit(steps.result()), last_finish);
    steps.begin_masks(*scheduler);
  } else {
    ++num_failed_steps;
    log::error("a step failed: " + done.error().message);
    queue_events(scheduler->abort({done.error().code, "the step failed: " + done.error().message}),
                 last_finish);
    steps.drop_all();
    if (agent->is_lost()) {
      lost = true;
      return fail_all(
          {ErrorCode::kDeviceLost, "the device was lost; retry once the model is loaded again"});
    }
  }
  if (options.debug.check_invariants) scheduler->check_invariants();
  const Clock::time_point now = Clock::now();
  busy += now - std::exchange(busy_since, now);
}

// Commands and the deadline of a stop are handled only while no step is in flight, so no step is
// started ahead if there are any. A request that arrives after this check waits one step longer.
void Engine::Impl::start_ahead() {
  if (!options.debug.run_ahead || !agent->runs_ahead() || steps.newest().error) return;
  if (stop_at || !inbox->queue.empty()) return;
  const scheduler::StepPlan& plan = scheduler->plan_ahead(pace.limits(options.debug));
  if (!plan.empty()) start(plan);
}

void Engine::Impl::start(const scheduler::StepPlan& plan) {
  steps.start(*agent, plan, *scheduler);
  const Clock::time_point since = steps.newest().since;
  for (const auto& [key, num_cached] : plan.admitted) {
    streams.at(key).record.admitted(metrics, num_cached, since);
    queue.admitted(key, since);
  }
  queue.planned(plan.num_admissions, scheduler->num_waiting(), since);
  queue_notices(plan, since);
}

// The oldest of those that were started.
Result<void> Engine::Impl::finish() {
  auto [step, done] = steps.finish(*agent);
  ++num_steps;
  num_steps_ahead += step.is_ahead ? 1 : 0;
  metrics.step_tokens.add(step.num_tokens);
  metrics.step_streams.add(step.num_rows);
  if (step.error) return std::move(done);
  const Clock::time_point now = Clock::now();
  pace.add(step.num_tokens, step.num_rows,
           now - std::max(step.since, std::exchange(last_finish, now)));
  return std::move(done);
}

// Requests that arrive together start together: otherwise the first one's step would delay the
// others, and their prefill then its tokens. So the first step after an idle period waits for more
// requests, for a hundredth of the time that the step will take.
void Engine::Impl::gather() {
  const Clock::time_point start = Clock::now();
  while (!scheduler->idle() && !stop_at) {
    const auto patience = std::min<Clock::duration>(
        pace.time_for(scheduler->num_waiting_tokens()) / 100, kGatherTimeMax);
    std::vector<EngineCommand> commands = inbox->queue.wait_drain_until(start + patience);
    if (commands.empty()) return;
    apply_all(std::move(commands));
  }
}

void Engine::Impl::run() {
  while (!steps.empty() || !finished()) {
    const Result<void> turned = guarded([this]() -> Result<void> {
      if (steps.empty()) take_commands();
      if (!steps.empty() || !scheduler->idle()) step();
      return {};
    });
    if (!turned) start_over(turned.error().message);
  }
  std::vector<Request> unanswered = close();
  if (!lost) return;
  scheduler.reset();
  agent.reset();  // with all that it has on the device, before another one comes
  if (on_lost) on_lost(std::move(unanswered));
}

// What is queued is answered, or given back where the device was lost.
std::vector<Request> Engine::Impl::close() {
  stopped = true;
  publish();
  inbox->queue.close();
  std::vector<Request> unanswered;
  for (EngineCommand& command : inbox->queue.drain()) {
    if (auto* request = std::get_if<Request>(&command)) {
      if (lost && !stop_at && on_lost) {
        unanswered.push_back(std::move(*request));
      } else {
        refuse(*request, shutting_down());
      }
    } else if (const auto* cancel = std::get_if<CancelCommand>(&command)) {
      std::erase_if(unanswered, [&](const Request& waiting) {
        if (waiting.key != cancel->key) return false;
        refuse(waiting, cancel->reason);
        return true;
      });
    }
  }
  deliver();
  if (!outbox.empty()) deliver();  // what could not be delivered, once more
  return unanswered;
}

// Something other than the agent has thrown, usually std::bad_alloc. The scheduler's state is
// unknown: its streams fail, and a new scheduler with an empty cache replaces it. If that throws
// too, the process terminates.
void Engine::Impl::start_over(const std::string& why) {
  log::error("the engine failed: " + why);
  while (!steps.empty()) {
    // The plans are the old scheduler's.
    if (!steps.oldest().is_chosen || !finish()) steps.drop_all();
  }
  ++num_failed_steps;
  const scheduler::SchedulerCounters counters = scheduler->counters();
  scheduler.reset();
  fail_all({ErrorCode::kInternal, "internal: the engine failed: " + why});
  scheduler = make_scheduler(agent->info(), limits, options, counters);
}

void Engine::Impl::take_commands() {
  if (scheduler->idle()) {
    deliver();
    if (!outbox.empty()) deliver();  // what could not be delivered, once more
    apply_all(inbox->queue.wait_drain());
    gather();
    busy_since = Clock::now();
  } else {
    apply_all(inbox->queue.drain());
  }
  if (stop_at && Clock::now() >= *stop_at) fail_all(shutting_down());
}

// In order, except that cancels of live streams come first: they free slots for the requests before
// them.
void Engine::Impl::apply_all(std::vector<EngineCommand> commands) {
  for (EngineCommand& command : commands) {
    if (std::holds_alternative<CancelCommand>(command)) apply_one(command);
  }
  for (EngineCommand& command : commands) apply_one(command);
}

// A command that throws must not prevent the ones after it.
void Engine::Impl::apply_one(EngineCommand& command) {
  const Result<void> applied = guarded([&]() -> Result<void> {
    std::visit([this](auto& c) { apply(c); }, command);
    return {};
  });
  if (applied) return;
  auto* request = std::get_if<Request>(&command);
  if (request != nullptr && request->sink != nullptr && !streams.contains(request->key)) {
    refuse(*request, Error{ErrorCode::kInternal, "internal: " + applied.error().message});
  }
  start_over(applied.error().message);
}

void Engine::Impl::apply(Request& request) {
  if (stop_at) return refuse(request, shutting_down());
  if (num_requests() >= options.max_concurrent_requests) {
    return refuse(request, overloaded(static_cast<std::size_t>(options.max_concurrent_requests),
                                      inbox->expected_wait_ms));
  }
  LMTP_CHECK(!streams.contains(request.key), request.key.connection, request.key.stream);
  if (request.fork != nullptr) return begin_fork(request);
  streams.emplace(request.key, Stream{request.sink, StreamRecord(request), request.wants_notices});
  if (request.wants_notices) queue.begin(request.key, Clock::now());
  const std::uint64_t seed = (static_cast<std::uint64_t>(random()) << 32) | random();
  queue_events(scheduler->add(make_sequence(std::move(request), limits, seed)), Clock::now());
}

void Engine::Impl::begin_fork(const Request& request) {
  const StreamKey& key = request.key;
  const auto begun = scheduler->fork(request.fork->key, key, request.fork->changes);
  if (!begun) return refuse(request, begun.error());
  const bool wants_notices = streams.at(request.fork->key).wants_notices;
  streams.emplace(key, Stream{request.sink, StreamRecord(request), wants_notices});
  if (wants_notices) queue.begin(key, Clock::now());
  outbox.add(key.connection, request.sink, *begun);
}

void Engine::Impl::apply(Backtrack& command) {
  Result<void> done = check_ids("append", command.appended, limits.vocab_size);
  if (done) done = scheduler->backtrack(command.key, command.num_dropped, command.appended);
  if (done) return;
  outbox.add(command.key.connection, command.sink, EditRefused{command.key.stream, done.error()});
}

void Engine::Impl::apply(CancelCommand& cancel) {
  const auto stream = streams.find(cancel.key);
  if (stream == streams.end()) return;
  scheduler->remove(cancel.key);
  end_with_error(stream, cancel.reason);
}

void Engine::Impl::apply(StopCommand& stop) {
  if (!stop_at) tell_draining(stop.deadline - Clock::now());
  if (!stop_at || stop.deadline < *stop_at) stop_at = stop.deadline;
}

// Ends every stream that is open with this error.
void Engine::Impl::fail_all(const Error& error) {
  while (!streams.empty()) {
    if (scheduler != nullptr) scheduler->remove(streams.begin()->first);
    end_with_error(streams.begin(), error);
  }
}

void Engine::Impl::queue_error(StreamKey key, const std::shared_ptr<EventSink>& sink,
                               const Error& error) {
  outbox.add(key.connection, sink,
             StreamError{.stream_id = key.stream, .error = error, .sample = key.sample});
}

// For a request that has no stream yet.
void Engine::Impl::refuse(const Request& request, const Error& error) {
  StreamRecord(request).failed(metrics, error.code);
  queue_error(request.key, request.sink, error);
}

void Engine::Impl::end_with_error(Streams::iterator at, const Error& error) {
  at->second.record.failed(metrics, error.code);
  queue_error(at->first, at->second.sink, error);
  end_stream(at);
}

void Engine::Impl::end_stream(Streams::iterator at) {
  queue.ended(at->first);
  times.add(Clock::now() - at->second.record.arrival());
  inbox->expected_wait_ms = times.wait_ms(options.max_concurrent_requests);
  streams.erase(at);
}

// What the plan did to streams, and how those that wait stand in the queue.
void Engine::Impl::queue_notices(const scheduler::StepPlan& plan, Clock::time_point now) {
  const auto add = [this](const StreamKey& key, StreamNotice notice) {
    const Stream& stream = streams.at(key);
    notice.stream_id = key.stream;
    notice.sample = key.sample;
    if (!stream.has_gap) outbox.add(key.connection, stream.sink, notice);
  };
  for (const auto& [key, kind] : plan.notices) {
    add(key, {.kind = kind});
    if (kind == StreamNotice::Kind::kPreempted) {
      queue.begin(key, now);
    } else {
      queue.admitted(key, now);
    }
  }
  if (!queue.is_due(now)) return;
  for (const auto& [key, notice] : queue.take(scheduler->waiting_order(), now)) add(key, notice);
}

// Once, where there is time left for streams to end by themselves.
void Engine::Impl::tell_draining(Clock::duration grace) {
  if (grace <= Clock::duration::zero()) return;
  StreamNotice notice{.kind = StreamNotice::Kind::kDraining};
  notice.wait_ms = std::chrono::duration_cast<std::chrono::milliseconds>(grace).count();
  for (const auto& [key, stream] : streams) {
    if (!stream.wants_notices || stream.has_gap) continue;
    notice.stream_id = key.stream;
    notice.sample = key.sample;
    outbox.add(key.connection, stream.sink, notice);
  }
}

// `now`: when the step that gave them had ended.
void Engine::Impl::queue_events(std::span<scheduler::SchedulerEvent> events,
                                Clock::time_point now) {
  for (scheduler::SchedulerEvent& event : events) {
    const auto at = streams.find(event.key);
    LMTP_CHECK(at != streams.end(), event.key.connection, event.key.stream);
    Stream& stream = at->second;
    auto* token = std::get_if<TokenEvent>(&event.entry);
    if (token == nullptr) {
      end_with_error(at, stream.has_gap ? lost_tokens() : std::get<StreamError>(event.entry).error);
      continue;
    }
    stream.record.token(metrics, now);
    const bool ends = token->finish_reason != FinishReason::kNone;
    if (stream.has_gap) {
      if (ends) end_with_error(at, lost_tokens());
      continue;
    }
    if (ends) stream.record.finished(metrics, token->finish_reason);
    outbox.add(event.key.connection, stream.sink, std::move(*token));
    if (ends) end_stream(at);
  }
}

// The counters first. A step may be under way, so streams of a connection whose events could
// not be delivered end as if they were cancelled.
void Engine::Impl::deliver() {
  publish();
  for (const ConnectionId connection : outbox.deliver()) {
    for (auto& [key, stream] : streams) stream.has_gap |= key.connection == connection;
    for (const auto& [key, stream] : streams) {
      if (stream.has_gap) inbox->queue.push_control(CancelCommand{key, lost_tokens()});
    }
  }
}

void Engine::Impl::publish() {
  const std::lock_guard lock(inbox->stats_mutex);
  EngineStats& stats = inbox->stats;
  stats.stopped = stopped;
  stats.num_steps = num_steps;
  stats.num_steps_ahead = num_steps_ahead;
  stats.num_failed_steps = num_failed_steps;
  stats.busy_us = std::chrono::duration_cast<std::chrono::microseconds>(busy).count();
  stats.device_wait_us = std::chrono::duration_cast<std::chrono::microseconds>(device_wait).count();
  read_counters(*scheduler, stats);
}

Engine::Engine(std::unique_ptr<scheduler::ModelAgent> agent, ModelLimits limits,
               EngineOptions options, OnLost on_lost, const EngineCounters& counters) {
  LMTP_CHECK(agent != nullptr);
  LMTP_CHECK(options.batch.max_tokens >= 1, options.batch.max_tokens);
  LMTP_CHECK(options.debug.max_chunk_tokens >= 0, options.debug.max_chunk_tokens);
  LMTP_CHECK(options.debug.max_prefill_ms >= 0, options.debug.max_prefill_ms);
  LMTP_CHECK(options.debug.max_alone_ms >= 0, options.debug.max_alone_ms);
  LMTP_CHECK(options.max_concurrent_requests >= 1, options.max_concurrent_requests);
  impl_ = std::make_unique<Impl>(std::move(agent), std::move(limits), options, std::move(on_lost),
                                 counters);
  impl_->inbox->stats.agent = impl_->agent->info();
  impl_->publish();
  impl_->thread = std::thread([impl = impl_.get()] { impl->run(); });
}

Engine::~Engine() { stop(0); }

EngineInstance Engine::instance() const { return EngineInstance(impl_->inbox); }

EngineStats Engine::stats() const { return instance().stats(); }

void Engine::stop(int grace_ms) {
  const std::lock_guard lock(impl_->stop_mutex);
  if (!impl_->thread.joinable()) return;
  impl_->inbox->queue.push_control(StopCommand{Clock::now() + std::chrono::milliseconds(grace_ms)});
  impl_->thread.join();
}

}  // namespace lmtp::engine
