// What the dispatcher does with FORK and BACKTRACK: from the connection's streams to their engine,
// which answers with ForkBegun and EditRefused, or with the next tokens.
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "dispatcher.h"
#include "lmtp/base/runtime.h"
#include "operations.h"

namespace lmtp::server {
namespace {

// The live stream that a FORK or BACKTRACK may name.
Result<StreamTable::Live*> find_running(StreamId id, StreamTable& streams) {
  const std::string name = "stream_id: " + std::to_string(id);
  StreamTable::Live* live = streams.find(id);
  if (live == nullptr || live->cancelled) {
    return Error{ErrorCode::kInvalid, name + " is not live; allowed are live streams of GENERATE"};
  }
  if (live->scores) {
    return Error{ErrorCode::kInvalid, name + " scores; allowed are live streams of GENERATE"};
  }
  if (live->extended == nullptr) return live;
  if (live->extended->waiting != nullptr) {
    return Error{ErrorCode::kInvalid, name + " has not begun; allowed are streams that run"};
  }
  if (live->extended->samples.size() > 1) {
    return Error{ErrorCode::kInvalid, name + " has several samples; allowed are streams of n 1"};
  }
  return live;
}

}  // namespace

void Dispatcher::handle(protocol::ForkMessage& message, Peer& peer, Answers& answers) {
  const auto parent = find_running(message.stream_id, peer.streams);
  const StreamId of_id = message.stream_id;
  if (!parent) return answer_msg_error(error_entry(of_id, parent.error()), answers);
  for (const StreamId id : message.streams) {
    if (peer.streams.contains(id)) {
      return answer_msg_error({of_id, "streams: " + id_in_use(id)}, answers);
    }
  }
  const auto fork = std::make_shared<const ForkOf>(
      ForkOf{{peer.streams.connection(), of_id}, std::move(message.changes)});
  std::vector<Request> forks(message.streams.size());
  for (std::size_t i = 0; i < forks.size(); ++i) {
    forks[i].key.stream = message.streams[i];
    forks[i].model = (*parent)->model;
    forks[i].fork = fork;
  }
  const ExtendedStream* of = (*parent)->extended.get();
  const bool sends_text = of != nullptr && of->sends_text;
  const bool is_parsed = of != nullptr && of->is_parsed;
  const bool wants_notices = of != nullptr && of->wants_notices;
  const std::string model = (*parent)->model;
  const Requester from = requester(of_id, runtime::Clock::now(), peer);
  registry::Submission submitted =
      server::submit_forks(models_.of(peer.caller), from, std::move(forks));
  if (const auto* refusal = std::get_if<registry::Refusal>(&submitted)) {
    return answer_msg_error(error_entry(of_id, refusal->error), answers);
  }
  for (const StreamId id : message.streams) {
    auto stream = std::make_unique<ExtendedStream>();
    stream->sends_text = sends_text;
    stream->is_parsed = is_parsed;
    stream->wants_notices = wants_notices;
    stream->samples.push_back(
        {std::get<std::shared_ptr<registry::StreamCanceller>>(submitted), {}});
    stream->num_alive = 1;
    peer.streams.add(id, std::move(stream)).model = model;
  }
}

void Dispatcher::handle(protocol::BacktrackMessage& message, Peer& peer, Answers& answers) {
  const auto live = find_running(message.stream_id, peer.streams);
  Result<void> taken;
  if (live) {
    taken = models_.of(peer.caller)
                .backtrack((*live)->model, {.key = {peer.streams.connection(), message.stream_id},
                                            .num_dropped = message.num_dropped,
                                            .appended = std::move(message.appended),
                                            .sink = peer.sink});
  }
  if (!live || !taken) {
    answer_msg_error(error_entry(message.stream_id, live ? taken.error() : live.error()), answers);
  }
}

}  // namespace lmtp::server
