// The part of Engine that tells streams what has become of them, and counts it.
#include <chrono>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>
#include <variant>

#include "engine_impl.h"
#include "lmtp/base/check.h"
#include "lmtp/engine/refusals.h"
#include "lmtp/request/error_kind.h"

namespace lmtp::engine {

void Engine::Impl::queue_error(StreamKey key, const std::shared_ptr<EventSink>& sink,
                               const Error& error) {
  outbox.add(key.connection, sink,
             StreamError{.stream_id = key.stream, .error = error, .sample = key.sample});
}

// For a request that has no stream yet.
void Engine::Impl::refuse(const Request& request, const Error& error) {
  const StreamRecord record(request);
  queue_error(request.key, request.sink, error);
  record.failed(metrics, error.code);
}

void Engine::Impl::end_with_error(Streams::iterator at, const Error& error) {
  queue_error(at->first, at->second.sink, error);
  at->second.record.failed(metrics, error.code);
  end_stream(at, error_kind(error.code).name);
}

void Engine::Impl::end_stream(Streams::iterator at, std::string_view outcome) {
  if (trace.is_on()) trace.end(at->second.trace, outcome, at->second.record.arrival());
  controlled.forget(at->first);
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
  for (const auto& [key, kind, num_tokens] : plan.notices) {
    add(key, {.kind = kind, .num_tokens = num_tokens});
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
    if (controlled.keep(event.key, *token)) continue;
    const FinishReason reason = token->finish_reason;
    give_token(stream, event.key, std::move(*token), now);
    if (reason == FinishReason::kNone) continue;
    if (stream.has_gap) {
      end_with_error(at, lost_tokens());
    } else {
      end_stream(at, kFinishNames[static_cast<std::size_t>(reason)]);
    }
  }
}

void Engine::Impl::give_token(Stream& stream, const StreamKey& key, TokenEvent&& token,
                              Clock::time_point now) {
  const bool gives = token.token != kNoToken || token.embedding != nullptr;
  if (gives && stream.record.token(metrics, now)) {
    token.num_cached = stream.record.num_cached(token.finish_reason != FinishReason::kNone);
  }
  if (stream.has_gap) return;
  if (trace.is_on() && gives) trace.token(stream.trace);
  const FinishReason reason = token.finish_reason;
  outbox.add(key.connection, stream.sink, std::move(token));
  if (reason != FinishReason::kNone) stream.record.finished(metrics, reason);
}

// The counters first. A step may be under way, so streams of a connection whose events could
// not be delivered end as if they were cancelled.
void Engine::Impl::deliver() {
  publish();
  send_out();
  trace.delivered();
}

void Engine::Impl::send_out() {
  EngineTrace::Slice slice(trace, "deliver");
  if (outbox.empty()) slice.drop();
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
  const MaskPool::Counts& masks = steps.mask_counts();
  stats.num_masks = num_masks + masks.num_masks;
  stats.num_late_masks = num_late_masks + masks.num_late;
  stats.mask_wait_us =
      mask_wait_us + std::chrono::duration_cast<std::chrono::microseconds>(masks.waited).count();
  stats.device_wait_us = std::chrono::duration_cast<std::chrono::microseconds>(device_wait).count();
  read_counters(*scheduler, stats);
}

}  // namespace lmtp::engine
