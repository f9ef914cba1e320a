#include "outbox.h"

#include <unordered_map>
#include <utility>

#include "lmtp/base/guarded.h"
#include "lmtp/base/log.h"

namespace lmtp::engine {
namespace {

struct Delivery {
  ConnectionId connection = 0;
  std::shared_ptr<EventSink> sink;
  std::size_t num_events = 0;
  std::vector<StreamEvent> events;
  bool failed = false;
};

// Of a stream whose last event, which this is, could not be delivered.
StreamError lost_end(const StreamEvent& event) {
  StreamError error{.error = {ErrorCode::kInternal, "internal: the end of this stream was lost"}};
  std::visit(
      [&error](const auto& e) {
        error.stream_id = e.stream_id;
        if constexpr (requires { e.sample; }) error.sample = e.sample;
      },
      event);
  return error;
}

}  // namespace

void Outbox::add(ConnectionId connection, std::shared_ptr<EventSink> sink, StreamEvent event) {
  outgoing_.push_back({connection, std::move(sink), std::move(event)});
}

std::vector<ConnectionId> Outbox::deliver() {
  // All memory is taken before anything is moved.
  std::vector<Delivery> deliveries;
  std::unordered_map<ConnectionId, std::size_t> delivery_of;
  for (Outgoing& out : outgoing_) {
    const auto [at, is_new] = delivery_of.try_emplace(out.connection, deliveries.size());
    if (is_new) {
      deliveries.push_back({.connection = out.connection, .sink = out.sink, .events = {}});
    }
    out.delivery = at->second;
    ++deliveries[out.delivery].num_events;
  }
  for (Delivery& delivery : deliveries) delivery.events.reserve(delivery.num_events);
  for (Outgoing& out : outgoing_) deliveries[out.delivery].events.push_back(std::move(out.event));
  std::vector<Outgoing> sent = std::exchange(outgoing_, {});
  std::vector<ConnectionId> failed;
  for (Delivery& delivery : deliveries) {
    const Result<void> done = guarded([&]() -> Result<void> {
      delivery.sink->deliver(std::move(delivery.events));
      return {};
    });
    if (done) continue;
    log::error("connection " + std::to_string(delivery.connection) +
               ": events are lost: " + done.error().message);
    delivery.failed = true;
    failed.push_back(delivery.connection);
  }
  if (failed.empty()) return failed;
  for (Outgoing& out : sent) {
    // Of an event that was moved from, the stream's id and its finish_reason are still there.
    if (!deliveries[out.delivery].failed || !is_last(out.event)) continue;
    add(out.connection, std::move(out.sink), lost_end(out.event));
  }
  return failed;
}

}  // namespace lmtp::engine
