#include "outbox.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "lmtp/base/guarded.h"
#include "lmtp/base/log.h"

namespace lmtp::engine {
namespace {

// Of a stream whose last event, which this is, could not be delivered.
StreamError lost_end(const StreamEvent& event) {
  StreamError error;
  std::visit(
      [&error](const auto& e) {
        error.stream_id = e.stream_id;
        if constexpr (requires { e.sample; }) error.sample = e.sample;
      },
      event);
  return error;
}

}  // namespace

void Outbox::add(ConnectionId connection, const std::shared_ptr<EventSink>& sink,
                 StreamEvent&& event) {
  const std::size_t to = delivery_to(connection, sink);
  const bool is_edit = std::holds_alternative<EditRefused>(event);
  outgoing_.push_back({to, std::move(event)});
  Delivery& delivery = deliveries_[to];
  if (delivery.is_of_edits && !is_edit) delivery.sink = sink;
  delivery.is_of_edits = is_edit && (delivery.is_of_edits || delivery.num_events == 0);
  ++delivery.num_events;
}

// Where the connection has its place in this round, or would have.
Outbox::Place& Outbox::place_of(ConnectionId connection) {
  const std::size_t mask = places_.size() - 1;
  auto at = static_cast<std::size_t>((connection * 0x9E3779B97F4A7C15ULL) >> 32) & mask;
  const auto is_others = [&](const Place& place) {
    return place.round == round_ && deliveries_[place.delivery].connection != connection;
  };
  while (is_others(places_[at])) at = (at + 1) & mask;
  return places_[at];
}

std::size_t Outbox::delivery_to(ConnectionId connection, const std::shared_ptr<EventSink>& sink) {
  if (const Place& known = place_of(connection); known.round == round_) return known.delivery;
  if ((deliveries_.size() + 1) * 2 > places_.size()) grow();
  deliveries_.push_back({.connection = connection, .sink = sink});
  place_of(connection) = {round_, deliveries_.size() - 1};
  return deliveries_.size() - 1;
}

void Outbox::grow() {
  std::vector<Place> places(places_.size() * 2);
  places_.swap(places);
  for (std::size_t i = 0; i < deliveries_.size(); ++i) {
    place_of(deliveries_[i].connection) = {round_, i};
  }
}

std::span<const ConnectionId> Outbox::deliver() {
  failed_.clear();
  add_lost_ends();
  if (outgoing_.empty()) return {};
  // All memory is taken before anything is moved.
  lost_.reserve(outgoing_.size());
  grouped_.resize(outgoing_.size());
  wakers_.reserve(deliveries_.size());
  failed_.reserve(deliveries_.size());
  group();
  sent_.clear();
  sent_.swap(deliveries_);
  ++round_;
  for (Delivery& delivery : sent_) make(delivery);
  for (const std::shared_ptr<Waker>& waker : wakers_) waker->wake();
  wakers_.clear();
  if (!failed_.empty()) keep_lost_ends();
  grouped_.clear();
  sent_.clear();
  guarded_twice([&] { add_lost_ends(); });  // before more is added, or with the next call
  return failed_;
}

// The events of each connection, one behind the other.
void Outbox::group() {
  std::size_t begin = 0;
  for (Delivery& delivery : deliveries_) {
    delivery.end = begin;
    begin += delivery.num_events;
  }
  for (Outgoing& out : outgoing_) grouped_[deliveries_[out.delivery].end++] = std::move(out.event);
  outgoing_.clear();
}

void Outbox::make(Delivery& delivery) {
  if (delivery.num_events == 0) return;  // the one that it was to get could not be added
  const Result<void> done = guarded([&]() -> Result<void> {
    std::shared_ptr<Waker> waker = delivery.sink->waker();
    delivery.sink->deliver(
        std::span(grouped_).subspan(delivery.end - delivery.num_events, delivery.num_events));
    if (waker != nullptr && std::ranges::find(wakers_, waker) == wakers_.end()) {
      wakers_.push_back(std::move(waker));
    }
    return {};
  });
  if (done) return;
  delivery.failed = true;
  failed_.push_back(delivery.connection);
  // For the line there may be no memory either.
  guarded_twice([&] {
    log::error("connection " + std::to_string(delivery.connection) +
               ": events are lost: " + done.error().message);
  });
}

// What was not taken has not been moved from either.
void Outbox::keep_lost_ends() noexcept {
  for (const Delivery& delivery : sent_) {
    if (!delivery.failed) continue;
    for (std::size_t i = delivery.end - delivery.num_events; i < delivery.end; ++i) {
      StreamEvent& event = grouped_[i];
      if (std::holds_alternative<SampleForked>(event) ||
          std::holds_alternative<EditRefused>(event)) {
        lost_.push_back({delivery.connection, delivery.sink, std::move(event)});
      } else if (is_last(event)) {
        lost_.push_back({delivery.connection, delivery.sink, lost_end(event)});
      }
    }
  }
  std::ranges::reverse(lost_);
}

// Each as memory allows: what is left comes with the next call.
void Outbox::add_lost_ends() {
  for (; !lost_.empty(); lost_.pop_back()) {
    const LostEnd& end = lost_.back();
    StreamEvent event = end.event;
    if (auto* error = std::get_if<StreamError>(&event)) {
      error->error = {ErrorCode::kInternal, "internal: the end of this stream was lost"};
    }
    add(end.connection, end.sink, std::move(event));
  }
}

}  // namespace lmtp::engine
