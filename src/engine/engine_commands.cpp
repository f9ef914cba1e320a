// The part of Engine that does what others ask: requests, cancels, edits, what controllers answer.
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine_impl.h"
#include "lmtp/base/check.h"
#include "lmtp/base/guarded.h"
#include "lmtp/engine/refusals.h"

namespace lmtp::engine {
namespace {

Error has_controller(const StreamKey& key) {
  return {ErrorCode::kInvalid, "stream_id: " + std::to_string(key.stream) +
                                   " has a controller; allowed are streams without one"};
}

}  // namespace

// In order, except that cancels of live streams come first: they free slots for the requests before
// them.
void Engine::Impl::apply_all(std::vector<EngineCommand> commands) {
  scheduler->set_recalls(kRecallsMax);
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
    guarded_twice([&] {
      refuse(*request, Error{ErrorCode::kInternal, "internal: " + applied.error().message});
    });
  }
  if (auto* const edit = std::get_if<Backtrack>(&command)) {
    guarded_twice([&] {
      outbox.add(edit->key.connection, edit->sink, EditRefused{edit->key.stream, applied.error()});
    });
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
  if (request.adapter != nullptr) {
    const Result<void> fits = check_adapter(*request.adapter, scheduler->pool().num_total() + 1,
                                            scheduler->kv_layout(), limits);
    if (!fits) return refuse(request, fits.error());
  }
  const auto begun = streams.emplace(
      request.key, Stream{request.sink, StreamRecord(request), request.wants_notices});
  Stream& stream = begun.first->second;
  if (trace.is_on()) {
    stream.trace = trace.begin(request.key, request.kind, static_cast<int>(request.prompt.size()),
                               request.params.max_tokens, request.arrival);
  }
  if (request.wants_notices) queue.begin(request.key, Clock::now());
  const std::uint64_t seed = (static_cast<std::uint64_t>(random()) << 32) | random();
  const StreamKey key = request.key;
  const std::shared_ptr<aici::Instance> controller = std::move(request.controller);
  auto sequence = make_sequence(std::move(request), limits, seed);
  if (controller != nullptr) {
    sequence->is_controlled = true;
    sequence->params.ignore_eos = true;  // the controller says when it ends
    controlled.begin(*sequence, *controller);
  }
  queue_events(scheduler->add(std::move(sequence)), Clock::now());
  if (controller != nullptr) controlled.start(key, *scheduler);
}

void Engine::Impl::begin_fork(const Request& request) {
  const StreamKey& key = request.key;
  if (controlled.contains(request.fork->key)) {
    return refuse(request, has_controller(request.fork->key));
  }
  const auto begun = scheduler->fork(request.fork->key, key, request.fork->changes);
  if (!begun) return refuse(request, begun.error());
  const bool wants_notices = streams.at(request.fork->key).wants_notices;
  const auto fork =
      streams.emplace(key, Stream{request.sink, StreamRecord(request), wants_notices});
  if (trace.is_on()) trace_fork(key, fork.first->second);
  if (wants_notices) queue.begin(key, Clock::now());
  outbox.add(key.connection, request.sink, *begun);
}

void Engine::Impl::apply(Backtrack& command) {
  Result<void> done = check_ids("append", command.appended, limits.vocab_size);
  if (done && controlled.contains(command.key)) done = has_controller(command.key);
  if (done) done = scheduler->backtrack(command.key, command.num_dropped, command.appended);
  if (done) return;
  outbox.add(command.key.connection, command.sink, EditRefused{command.key.stream, done.error()});
}

void Engine::Impl::apply(ControllerAnswer& answer) { controlled.apply(answer, *scheduler); }

void Engine::Impl::give(const StreamKey& key, StreamEvent event) {
  Stream& stream = streams.at(key);
  if (auto* token = std::get_if<TokenEvent>(&event)) {
    give_token(stream, key, std::move(*token), Clock::now());
  } else if (!stream.has_gap) {
    outbox.add(key.connection, stream.sink, std::move(event));
  }
}

void Engine::Impl::finish(const StreamKey& key, TokenEvent last) {
  const auto at = streams.find(key);
  scheduler->remove(key);
  if (at->second.has_gap) return end_with_error(at, lost_tokens());
  give_token(at->second, key, std::move(last), Clock::now());
  end_stream(at, kFinishNames[static_cast<std::size_t>(FinishReason::kStop)]);
}

void Engine::Impl::end(const StreamKey& key, const Error& error) {
  const auto at = streams.find(key);
  scheduler->remove(key);
  end_with_error(at, at->second.has_gap ? lost_tokens() : error);
}

Result<void> Engine::Impl::take_room(const StreamKey& parent, std::size_t count) {
  const auto most = static_cast<std::size_t>(options.max_concurrent_requests);
  if (streams.size() + count > most) return overloaded(most, inbox->expected_wait_ms);
  Account* const account = streams.at(parent).record.account();
  for (std::size_t i = 0; account != nullptr && i < count; ++i) {
    const Result<void> begun = guarded([&] { return account->begin_part(0); });
    if (begun) continue;
    leave_room(parent, i);
    return begun;
  }
  return {};
}

void Engine::Impl::leave_room(const StreamKey& parent, std::size_t count) {
  Account* const account = streams.at(parent).record.account();
  if (account != nullptr) account->ended(static_cast<int>(count));
}

void Engine::Impl::begin_fork(const StreamKey& parent, const StreamKey& child,
                              const ForkBegun& begun) {
  const Stream& forked = streams.at(parent);
  const auto sink = forked.sink;
  const auto fork = streams
                        .emplace(child, Stream{sink, StreamRecord(forked.record, child),
                                               forked.wants_notices, forked.has_gap})
                        .first;
  try {
    outbox.add(child.connection, sink,
               SampleForked{child.stream, child.sample, parent.sample, begun.num_shared,
                            begun.num_backtracked});
  } catch (...) {
    streams.erase(fork);  // of which nobody knows, so that it can have no end
    throw;
  }
  if (trace.is_on()) trace_fork(child, fork->second);
}

void Engine::Impl::trace_fork(const StreamKey& key, Stream& stream) {
  const scheduler::Sequence* const sequence = scheduler->sequence(key);
  if (sequence == nullptr) return;
  stream.trace = trace.begin(key, sequence->kind, sequence->num_prompt, sequence->params.max_tokens,
                             stream.record.arrival());
}

void Engine::Impl::apply(CancelCommand& cancel) {
  if (controlled.contains(cancel.key)) {
    // A fork may not be known yet to whoever cancels.
    for (const StreamKey& key : controlled.family(cancel.key)) end(key, cancel.reason);
    return;
  }
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

}  // namespace lmtp::engine
