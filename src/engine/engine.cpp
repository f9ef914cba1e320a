#include "lmtp/engine/engine.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine_impl.h"
#include "lmtp/base/check.h"
#include "lmtp/base/guarded.h"
#include "lmtp/base/log.h"
#include "lmtp/base/runtime.h"
#include "lmtp/engine/refusals.h"

namespace lmtp::engine {

namespace {

constexpr std::chrono::milliseconds kGatherTimeMax{5};

Error device_lost() {
  return {ErrorCode::kDeviceLost, "the device was lost; retry once the model is loaded again"};
}

}  // namespace

// What the last step gave is delivered while this one runs; where the agent runs ahead, this one
// has been started by the last, and the next one is started as well.
void Engine::Impl::step() {
  const EngineTrace::Turn turn(trace);
  if (steps.empty()) {
    const scheduler::StepPlan& plan = this->plan();
    if (plan.empty()) {
      if (scheduler->lacks_recalls()) return deliver_cached_scores();
      if (scheduler->num_held() > 0) return wait_for_answers();
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
    commit();
  } else {
    ++num_failed_steps;
    log::error("a step failed: " + done.error().message);
    queue_events(scheduler->abort({done.error().code, "the step failed: " + done.error().message}),
                 last_finish);
    steps.drop_all();
    if (agent->is_lost()) {
      lost = true;
      return fail_all(device_lost());
    }
  }
  if (options.debug.check_invariants) scheduler->check_invariants();
  const Clock::time_point now = Clock::now();
  busy += now - std::exchange(busy_since, now);
}

const scheduler::StepPlan& Engine::Impl::plan() {
  const EngineTrace::Slice slice(trace, "plan");
  return scheduler->plan(pace.limits(options.debug));
}

void Engine::Impl::commit() {
  const EngineTrace::Slice slice(trace, "commit");
  scheduler->set_time(last_finish);
  scheduler->set_recalls(kRecallsMax);
  queue_events(scheduler->commit(steps.result()), last_finish);
  controlled.committed();
  steps.begin_masks(*scheduler);
}

// Commands and the deadline of a stop are handled only while no step is in flight, so no step is
// started ahead if there are any. A request that arrives after this check waits one step longer.
void Engine::Impl::start_ahead() {
  if (!options.debug.run_ahead || !agent->runs_ahead() || !steps.newest().begun) return;
  if (options.max_drafts > 0) return;  // what a step gives is not known before it has ended
  if (stop_at || !inbox->queue.empty() || controlled.has_choices()) return;
  const scheduler::StepPlan& plan = this->plan_ahead();
  if (!plan.empty()) start(plan);
}

const scheduler::StepPlan& Engine::Impl::plan_ahead() {
  const EngineTrace::Slice slice(trace, "plan ahead");
  return scheduler->plan_ahead(pace.limits(options.debug));
}

// Only Scores are there that are known. Their clients are given time to read.
void Engine::Impl::deliver_cached_scores() {
  deliver();
  apply_all(inbox->queue.wait_drain_until(Clock::now() + kRecallPause));
  scheduler->set_recalls(kRecallsMax);
  queue_events(scheduler->recall_more(), Clock::now());
}

// What could run needs blocks that held sequences have.
void Engine::Impl::wait_for_answers() {
  deliver();
  apply_all(inbox->queue.wait_drain_until(stop_at.value_or(Clock::time_point::max())));
}

void Engine::Impl::start(const scheduler::StepPlan& plan) {
  steps.start(*agent, plan, *scheduler);
  const Clock::time_point since = steps.newest().since;
  for (const auto& [key, num_cached] : plan.admitted) {
    Stream& stream = streams.at(key);
    stream.record.admitted(metrics, num_cached, since);
    if (trace.is_on()) {
      const int num_missing = scheduler->sequence(key)->num_to_compute() - num_cached;
      trace.admitted(stream.trace, num_cached, num_missing, stream.record.arrival(), since);
    }
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
  const Clock::time_point now = Clock::now();
  const Clock::time_point since = std::max(step.since, last_finish);
  if (trace.is_on()) trace_step(step, !done, since, now);
  if (!step.begun) return std::move(done);
  last_finish = now;
  pace.add(step.num_tokens, step.num_decodes, now - since, step.num_moves, step.num_drafts);
  return std::move(done);
}

// Of a stream's rows none begins before the one before it has ended.
void Engine::Impl::trace_step(const StartedStep& step, bool failed, Clock::time_point since,
                              Clock::time_point now) {
  const MaskPool::Counts& masks = steps.mask_counts();
  trace.step({.plan = step.plan,
              .number = num_steps,
              .is_ahead = step.is_ahead,
              .failed = failed,
              .num_blocks_free = scheduler->pool().num_free(),
              .num_waiting = scheduler->num_waiting(),
              .num_running = scheduler->num_running(),
              .num_preemptions = scheduler->counters().num_preemptions,
              .num_masks = masks.num_masks,
              .num_late_masks = masks.num_late});
  if (failed) return;
  for (std::size_t i = 0; i < step.plan->rows.size(); ++i) {
    const scheduler::Sequence* const sequence = scheduler->sequence_of(*step.plan, i);
    if (sequence == nullptr) continue;
    const auto stream = streams.find(sequence->key);
    if (stream == streams.end()) continue;
    trace.row(stream->second.trace, *sequence, step.plan->rows[i], steps.result().rows[i].skipped,
              since, now);
  }
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
      if (steps.empty()) {
        controlled.take_choices(*scheduler);
        // The last stream of an engine that stops may have ended by its choice: none comes then.
        if (!finished()) take_commands();
      }
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

// What is queued is answered, or given back where the device was lost; but forks, whose streams
// have ended: those of the same ids may be others by then.
std::vector<Request> Engine::Impl::close() {
  stopped = true;
  publish();
  inbox->queue.close();
  // Where memory runs out here, nobody starts over.
  std::vector<Request> unanswered;
  std::vector<EngineCommand> commands;
  guarded_twice([&] { commands = inbox->queue.drain(); });
  guarded_twice([&] { unanswered.reserve(commands.size()); });
  for (EngineCommand& command : commands) {
    if (auto* request = std::get_if<Request>(&command)) {
      const bool comes_back = lost && !stop_at && on_lost;
      if (comes_back && request->fork == nullptr) {
        unanswered.push_back(std::move(*request));
      } else {
        guarded_twice([&] { refuse(*request, comes_back ? device_lost() : shutting_down()); });
      }
    } else if (const auto* cancel = std::get_if<CancelCommand>(&command)) {
      std::erase_if(unanswered, [&](const Request& waiting) {
        if (waiting.key != cancel->key) return false;
        guarded_twice([&] { refuse(waiting, cancel->reason); });
        return true;
      });
    } else if (const auto* edit = std::get_if<Backtrack>(&command)) {
      guarded_twice([&] {
        Error error{ErrorCode::kInvalid, "its stream has ended"};
        if (stop_at) error = shutting_down();
        if (std::ranges::count(unanswered, edit->key, &Request::key) > 0) error = device_lost();
        outbox.add(edit->key.connection, edit->sink,
                   EditRefused{edit->key.stream, std::move(error)});
      });
    }
  }
  guarded_twice([&] { deliver(); });
  if (!outbox.empty()) guarded_twice([&] { deliver(); });  // what could not be delivered, once more
  return unanswered;
}

// Something other than the agent has thrown, usually std::bad_alloc. The scheduler's state is
// unknown: its streams fail, and a new scheduler with an empty cache replaces it. If that throws
// too, the process terminates.
void Engine::Impl::start_over(const std::string& why) {
  guarded_twice([&] { log::error("the engine failed: " + why); });
  while (!steps.empty()) {
    // The plans are the old scheduler's.
    if (!steps.oldest().is_chosen || !finish()) steps.drop_all();
  }
  ++num_failed_steps;
  const scheduler::SchedulerCounters counters = scheduler->counters();
  scheduler.reset();
  fail_all({ErrorCode::kInternal, "internal: the engine failed: " + why});
  scheduler = make_scheduler(agent->info(), limits, options, counters);
  pace.set_fetch_time(agent->info().fetch_time, agent->info().kv_layout.num_with_layers());
}

void Engine::Impl::take_commands() {
  if (scheduler->idle()) {
    deliver();
    if (!outbox.empty()) deliver();  // what could not be delivered, once more
    // What is suspended or held is ended by the deadline of a stop.
    apply_all(stop_at && num_requests() > 0 ? inbox->queue.wait_drain_until(*stop_at)
                                            : inbox->queue.wait_drain());
    gather();
    busy_since = Clock::now();
  } else {
    apply_all(inbox->queue.drain());
  }
  if (stop_at && Clock::now() >= *stop_at) fail_all(shutting_down());
}

Engine::Engine(std::unique_ptr<scheduler::ModelAgent> agent, ModelLimits limits,
               EngineOptions options, OnLost on_lost, const EngineCounters& counters) {
  LMTP_CHECK(agent != nullptr);
  LMTP_CHECK(options.batch.max_tokens >= 1, options.batch.max_tokens);
  LMTP_CHECK(options.debug.max_chunk_tokens >= 0, options.debug.max_chunk_tokens);
  LMTP_CHECK(options.debug.max_prefill_ms >= 0, options.debug.max_prefill_ms);
  LMTP_CHECK(options.debug.max_alone_ms >= 0, options.debug.max_alone_ms);
  LMTP_CHECK(options.max_concurrent_requests >= 1, options.max_concurrent_requests);
  impl_ = std::make_unique<Impl>(std::move(agent), std::move(limits), std::move(options),
                                 std::move(on_lost), counters);
  impl_->inbox->stats.agent = impl_->agent->info();
  impl_->inbox->stats.max_adapters = impl_->options.batch.max_adapters;
  impl_->publish();
  impl_->thread = runtime::Thread([impl = impl_.get()] { impl->run(); });
}

Engine::~Engine() { stop(0); }

EngineInstance Engine::instance() const { return EngineInstance(impl_->inbox); }

EngineStats Engine::stats() const { return instance().stats(); }

void Engine::stop(int grace_ms) {
  const std::lock_guard lock(impl_->stop_mutex);
  if (!impl_->thread.joinable()) return;
  impl_->inbox->queue.push_control(
      StopCommand{Impl::Clock::now() + std::chrono::milliseconds(grace_ms)});
  impl_->thread.join();
}

}  // namespace lmtp::engine
