// Engine::Impl: the state of an engine's thread, and what it does. engine.cpp has the loop and its
// steps, engine_commands.cpp what comes from others, engine_events.cpp what goes to them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "controlled_streams.h"
#include "engine_trace.h"
#include "inbox.h"
#include "lmtp/base/runtime.h"
#include "lmtp/engine/engine.h"
#include "lmtp/engine/stream_record.h"
#include "lmtp/scheduler/scheduler.h"
#include "outbox.h"
#include "queue_notices.h"
#include "scheduling.h"
#include "step_pace.h"
#include "steps_in_flight.h"
#include "stream_times.h"

namespace lmtp::engine {

// Log probabilities from the score cache that one drain of commands, or one commit, gives: some 0.3
// MB for clients to read, and 2 ms of the engine's thread.
inline constexpr int kRecallsMax = 4096;
inline constexpr std::chrono::milliseconds kRecallPause{10};

// All members below "engine thread" belong to that thread alone.
struct Engine::Impl : private ControlledStreams::Host {
  using Clock = runtime::Clock;

  Impl(std::unique_ptr<scheduler::ModelAgent> agent_in, ModelLimits limits_in,
       EngineOptions options_in, OnLost on_lost_in, const EngineCounters& counters)
      : limits(std::move(limits_in)),
        options(std::move(options_in)),
        on_lost(std::move(on_lost_in)),
        inbox(std::make_shared<EngineInstance::Inbox>(
            static_cast<std::size_t>(options.max_concurrent_requests), counters)),
        agent(std::move(agent_in)),
        scheduler(make_scheduler(agent->info(), limits, options, counters)) {
    pace.set_fetch_time(agent->info().fetch_time, agent->info().kv_layout.num_with_layers());
  }

  void run();
  std::vector<Request> close();
  void start_over(const std::string& why);
  void gather();
  void take_commands();
  void step();
  void start(const scheduler::StepPlan& plan);
  const scheduler::StepPlan& plan();
  const scheduler::StepPlan& plan_ahead();
  void commit();
  void start_ahead();
  void wait_for_answers();
  void deliver_cached_scores();
  Result<void> finish();
  void trace_step(const StartedStep& step, bool failed, Clock::time_point since,
                  Clock::time_point now);

  void apply_all(std::vector<EngineCommand> commands);
  void apply_one(EngineCommand& command);
  void apply(Request& request);
  void apply(CancelCommand& cancel);
  void apply(StopCommand& stop);
  void apply(Backtrack& command);
  void apply(ControllerAnswer& answer);
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
  void send_out();

  const ModelLimits limits;
  const EngineOptions options;
  const OnLost on_lost;
  const std::shared_ptr<EngineInstance::Inbox> inbox;

  runtime::Thread thread;
  std::mutex stop_mutex;

  // Engine thread.
  struct Stream {
    std::shared_ptr<EventSink> sink;
    StreamRecord record;
    bool wants_notices = false;
    bool has_gap = false;  // tokens of it could not be delivered: it is being cancelled
    StreamTrace trace = {};
  };
  using Streams = std::unordered_map<StreamKey, Stream, StreamKeyHash>;
  Streams streams;
  void trace_fork(const StreamKey& key, Stream& stream);
  void give_token(Stream& stream, const StreamKey& key, TokenEvent&& token, Clock::time_point now);
  Result<void> take_room(const StreamKey& parent, std::size_t count) override;
  void leave_room(const StreamKey& parent, std::size_t count) override;
  void give(const StreamKey& key, StreamEvent event) override;
  void finish(const StreamKey& key, TokenEvent last) override;
  void end(const StreamKey& key, const Error& error) override;
  void begin_fork(const StreamKey& parent, const StreamKey& child, const ForkBegun& begun) override;
  void end_with_error(Streams::iterator at, const Error& error);
  void end_stream(Streams::iterator at, std::string_view outcome);
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
  ControlledStreams controlled{*this, inbox, limits.vocab_size};
  EngineTrace trace{options.trace, options.name, options.max_concurrent_requests,
                    inbox->stats.num_preemptions};
  StepsInFlight steps{limits.vocab_size, options.mask_wait_ms, trace};
  Clock::time_point last_finish;
  std::int64_t num_steps = inbox->stats.num_steps;
  std::int64_t num_steps_ahead = inbox->stats.num_steps_ahead;
  std::int64_t num_failed_steps = inbox->stats.num_failed_steps;
  // Of an engine that this one replaces.
  const std::int64_t num_masks = inbox->stats.num_masks;
  const std::int64_t num_late_masks = inbox->stats.num_late_masks;
  const std::int64_t mask_wait_us = inbox->stats.mask_wait_us;
  Clock::time_point busy_since;  // what is not yet in `busy`
  Clock::duration busy = std::chrono::microseconds(inbox->stats.busy_us);
  std::chrono::nanoseconds device_wait = std::chrono::microseconds(inbox->stats.device_wait_us);
  runtime::RandomDevice random;
};

}  // namespace lmtp::engine
