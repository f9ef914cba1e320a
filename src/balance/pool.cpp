// The pool's streams: from a request to a worker, and back. Its workers: pool_workers.cpp.
#include "pool.h"

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

#include "lmtp/base/log.h"
#include "lmtp/engine/refusals.h"
#include "placement.h"

namespace lmtp::balance {
namespace {

using protocol::ServerEntry;

// Seeds that JSON's numbers hold exactly.
constexpr std::uint64_t kSeedMask = (std::uint64_t{1} << 53) - 1;

// Whether another worker may have a place for what one has refused by that.
bool is_of_worker(ErrorCode code) {
  return code == ErrorCode::kOverloaded || code == ErrorCode::kUnavailable ||
         code == ErrorCode::kStopping || code == ErrorCode::kDeviceLost;
}

std::string seconds_text(int ms) { return std::to_string((ms + 500) / 1000) + " s"; }

}  // namespace

std::optional<Error> Pool::submit(Request& request) {
  Turn turn(mutex_);
  if (stopping_) return engine::shutting_down();
  if (streams_.size() >= options_.max_requests) return engine::overloaded(options_.max_requests);
  const ConnectionId share = request.share();
  const auto held = num_held_.find(share);
  const Result<void> fits = registry::check_share(
      request, held != num_held_.end() ? held->second : 0, options_.max_requests);
  if (!fits) return fits.error();
  const auto stream = std::make_shared<RemoteStream>(std::move(request), random_() & kSeedMask);
  streams_.emplace(stream->key(), stream);
  ++num_held_[share];
  if (!place(stream, turn)) wait_for_worker(stream, turn);
  return std::nullopt;
}

void Pool::cancel(StreamKey key) {
  Turn turn(mutex_);
  const auto found = streams_.find(key);
  if (found == streams_.end()) return;
  fail(StreamPtr(found->second), Error{ErrorCode::kCancelled, "cancelled"}, turn);
}

bool Pool::can_take(const Lane& lane) const {
  return lane.is_open && !lane.is_leaving && lane.worker->error.empty() && lane.worker->info &&
         lane.worker->info->is_ready();
}

// The streams of one client, or key, go through the same one, so that the worker's fair shares see
// several clients.
Lane& Pool::lane_of(const Worker& worker, const RemoteStream& stream) const {
  return *worker.lanes[stream.request().share() % worker.lanes.size()];
}

// Sends it to a worker. False: none can take it now.
bool Pool::place(const StreamPtr& stream, Turn& turn) {
  std::vector<Candidate> candidates;
  for (const auto& worker : workers_) {
    const Lane& lane = lane_of(*worker, *stream);
    if (!can_take(lane)) continue;
    if (std::ranges::find(stream->refused_by, worker->index) != stream->refused_by.end()) continue;
    // Elsewhere its bits might be others.
    if (stream->numerics && (stream->numerics->empty() || *stream->numerics != lane.numerics)) {
      continue;
    }
    candidates.push_back({worker->index, worker->num_tokens, worker->num_streams});
  }
  if (candidates.empty()) return false;
  if (stream->is_model_wait()) {
    turn.queue_event(stream->request(), ModelReady{stream->key().stream});
    end(stream, turn);
    return true;
  }
  Choice choice{.policy = options_.policy, .balance_factor = options_.balance_factor};
  std::vector<std::uint64_t> chain;
  std::optional<AffinityTable::Known> known;
  if (options_.policy == Policy::kPrefix) {
    chain = stream->chain(options_.affinity_tokens);
    known = affinities_.find(chain);
    if (known) choice.known = known->worker;
  }
  choice.num_tokens = stream->num_prompt() + stream->num_to_come();
  choice.chance = random_();
  while (!candidates.empty()) {
    const std::size_t chosen = choose(candidates, choice);
    Worker& worker = *workers_[candidates[chosen].worker];
    if (send_to(lane_of(worker, *stream), stream)) {
      affinities_.set(chain, worker.index);
      if (std::exchange(stream->was_lost, false)) {
        StreamNotice moved{stream->key().stream, stream->key().sample, StreamNotice::Kind::kMoved};
        if (stream->request().wants_notices) turn.queue_event(stream->request(), moved);
      }
      return true;
    }
    candidates.erase(candidates.begin() + static_cast<std::ptrdiff_t>(chosen));
  }
  return false;
}

bool Pool::send_to(Lane& lane, const StreamPtr& stream) {
  const StreamId id = lane.next_id;
  const std::size_t num_tokens =
      kMessageTokens + static_cast<std::size_t>(stream->num_prompt()) + stream->tokens().size();
  if (!lane.link->send(stream->ask(id), num_tokens)) return false;
  ++lane.next_id;
  if (stream->failed_moves == 0 && stream->tokens().empty()) {
    stream->record.admitted(metrics_, 0, Clock::now());
  }
  stream->lane = &lane;
  stream->id = id;
  stream->num_counted = stream->num_prompt() + stream->num_to_come();
  lane.worker->num_tokens += stream->num_counted;
  if (lane.worker->num_streams++ == 0) lane.worker->worked = Clock::now();
  lane.streams.emplace(id, stream);
  return true;
}

void Pool::wait_for_worker(const StreamPtr& stream, Turn& turn) {
  if (stream->failed_moves > kFailedMovesMax) {
    return fail(stream,
                Error{ErrorCode::kInternal, "internal: " + std::to_string(stream->failed_moves) +
                                                " workers were lost while they had this stream; "
                                                "it is not tried again"},
                turn);
  }
  stream->refused_by.clear();
  stream->deadline = Clock::now() + std::chrono::milliseconds(options_.worker_timeout_ms);
  waiting_.push_back(stream);
}

void Pool::place_waiting(Turn& turn) {
  std::vector<StreamPtr> before;
  before.swap(waiting_);
  for (StreamPtr& stream : before) {
    if (!place(stream, turn)) waiting_.push_back(std::move(stream));
  }
}

Error Pool::no_worker(const RemoteStream& stream) const {
  const bool has_others = std::ranges::any_of(
      workers_, [&](const auto& worker) { return can_take(lane_of(*worker, stream)); });
  if (has_others && stream.numerics) {
    return {ErrorCode::kUnavailable,
            "the worker of this stream was lost, and none with the same numerics has come within " +
                seconds_text(options_.worker_timeout_ms) +
                " to continue it exactly; ask for it again as a whole"};
  }
  return {ErrorCode::kOverloaded, "overloaded: no worker has taken this within " +
                                      seconds_text(options_.worker_timeout_ms) +
                                      " (--worker-timeout); retry later"};
}

// Waiting streams whose time is over.
void Pool::expire(Turn& turn) {
  const auto now = Clock::now();
  std::vector<StreamPtr> late;
  std::erase_if(waiting_, [&](const StreamPtr& stream) {
    if (stream->deadline > now) return false;
    late.push_back(stream);
    return true;
  });
  for (const StreamPtr& stream : late) fail(stream, no_worker(*stream), turn);
}

// From its worker, which goes on where it does not know of it.
void Pool::detach(RemoteStream& stream) {
  Lane* const lane = std::exchange(stream.lane, nullptr);
  if (lane == nullptr) return;
  lane->worker->num_tokens -= std::exchange(stream.num_counted, 0);
  --lane->worker->num_streams;
  lane->streams.erase(stream.id);
}

// All that is left of it here.
void Pool::end(const StreamPtr& stream, Turn& turn) {
  detach(*stream);
  std::erase(waiting_, stream);
  streams_.erase(stream->key());
  const auto held = num_held_.find(stream->request().share());
  if (--held->second == 0) num_held_.erase(held);
  turn.defer_destroy(stream);
  if (stopping_ && streams_.empty()) changed_.notify_all();
}

// REQUIRES: a worker has it.
void Pool::cancel_there(const RemoteStream& stream) {
  protocol::CancelMessage cancel;
  cancel.stream_id = stream.id;
  stream.lane->link->send(cancel, 0);
}

void Pool::fail(const StreamPtr& stream, Error error, Turn& turn) {
  StreamError told{stream->key().stream, std::move(error)};
  told.sample = stream->key().sample;
  fail(stream, std::move(told), turn);
}

void Pool::fail(const StreamPtr& stream, StreamError error, Turn& turn) {
  if (stream->lane != nullptr) cancel_there(*stream);
  if (stream->is_model_wait()) {
    refusals_.add(stream->request(), error.error.code);
  } else {
    stream->record.failed(metrics_, error.error.code);
  }
  turn.queue_event(stream->request(), std::move(error));
  end(stream, turn);
}

// The connection of a lane is lost: what it had goes on elsewhere.
void Pool::close(Lane& lane, Turn& turn) {
  lane.is_open = false;
  lane.is_leaving = false;
  std::vector<StreamPtr> lost;
  for (const auto& [id, stream] : lane.streams) lost.push_back(stream);
  // Those that have lost most come first at the next worker, then those that came first.
  std::ranges::sort(lost, std::ranges::less(), [](const StreamPtr& stream) {
    return std::tuple(-stream->failed_moves, stream->key().stream, stream->key().sample);
  });
  for (const StreamPtr& stream : lost) {
    detach(*stream);
    ++stream->failed_moves;
    stream->was_lost = true;
    const bool is_placed = stream->failed_moves <= kFailedMovesMax && place(stream, turn);
    if (!is_placed) wait_for_worker(stream, turn);
  }
}

Result<void> Pool::on_entries(Lane& lane, std::vector<ServerEntry>& entries) {
  Turn turn(mutex_);
  lane.last_heard = Clock::now();
  if (!lane.is_open) return Error{ErrorCode::kUnavailable, "it was given up before"};
  for (ServerEntry& entry : entries) {
    if (!entry.stream_id) continue;  // about nothing that is known here
    const auto found = lane.streams.find(*entry.stream_id);
    if (found == lane.streams.end()) continue;  // it has ended here
    const StreamPtr stream = found->second;
    on_entry(lane, stream, entry, turn);
    if (!lane.worker->error.empty()) return Error{ErrorCode::kUnavailable, lane.worker->error};
  }
  return {};
}

void Pool::on_entry(Lane& lane, const StreamPtr& stream, ServerEntry& entry, Turn& turn) {
  if (entry.is_msg) {
    if (entry.error.empty()) on_notice(lane, *stream, entry, turn);
  } else if (!entry.error.empty()) {
    on_error(lane, stream, entry, turn);
  } else {
    on_token(lane, stream, entry, turn);
  }
}

void Pool::on_notice(Lane& lane, RemoteStream& stream, const ServerEntry& entry, Turn& turn) {
  using Kind = StreamNotice::Kind;
  StreamNotice notice{stream.key().stream, stream.key().sample, Kind::kQueued,
                      entry.position,      entry.wait_ms,       entry.num_tokens};
  if (entry.status == "loading") {
    return turn.queue_event(
        stream.request(),
        LoadingNotice{stream.key().stream, stream.request().model, entry.progress_percent});
  }
  if (entry.status == "draining") lane.is_leaving = true;
  if (entry.status == "preempted") notice.kind = Kind::kPreempted;
  if (entry.status == "resumed") notice.kind = Kind::kResumed;
  if (entry.status == "recomputes") notice.kind = Kind::kRecomputes;
  const bool is_known = entry.status == "queued" || notice.kind != Kind::kQueued;
  if (is_known) turn.queue_event(stream.request(), notice);
}

void Pool::on_error(Lane& lane, const StreamPtr& stream, const ServerEntry& entry, Turn& turn) {
  StreamError error = error_of(entry, stream->key());
  detach(*stream);
  if (!is_of_worker(error.error.code)) return fail(stream, std::move(error), turn);
  if (error.error.code == ErrorCode::kStopping) lane.is_leaving = true;
  stream->refused_by.push_back(lane.worker->index);
  stream->was_lost |= !stream->tokens().empty();
  if (place(stream, turn)) return;
  // What a worker lacks it does not have sooner for waiting here; one that has gone comes back.
  if (error.error.code != ErrorCode::kStopping) return fail(stream, std::move(error), turn);
  ++stream->failed_moves;
  wait_for_worker(stream, turn);
}

void Pool::on_token(Lane& lane, const StreamPtr& stream, ServerEntry& entry, Turn& turn) {
  const bool is_last_there = entry.finish_reason != FinishReason::kNone;
  Result<TokenEvent> event = stream->take(entry, limits_->vocab_size);
  if (!event) return shun(*lane.worker, event.error().message);
  stream->failed_moves = 0;
  stream->refused_by.clear();
  stream->numerics = lane.numerics;
  lane.worker->worked = Clock::now();
  if (event->token != kNoToken) stream->record.token(metrics_, Clock::now());
  const FinishReason reason = event->finish_reason;
  turn.queue_event(stream->request(), *std::move(event));
  if (reason == FinishReason::kNone) {
    const std::int64_t left = std::max<std::int64_t>(stream->num_to_come(), 0);
    lane.worker->num_tokens -= stream->num_counted - left;  // the prompt has been computed
    stream->num_counted = left;
    return;
  }
  if (!is_last_there) cancel_there(*stream);
  if (options_.policy == Policy::kPrefix) {
    affinities_.set(stream->chain(options_.affinity_tokens), lane.worker->index);
  }
  stream->record.finished(metrics_, reason);
  end(stream, turn);
}

}  // namespace lmtp::balance
