#include "store.h"

#include <algorithm>
#include <utility>

namespace lmtp::server {

void ResponseStore::forget(Order::iterator held) {
  const StoredResponse& response = *held->response;
  num_bytes_ -= response.num_bytes();
  const auto owned = shares_.find(response.owner);
  owned->second.num_bytes -= response.num_bytes();
  if (--owned->second.num == 0) shares_.erase(owned);
  by_id_.erase(response.id);
  order_.erase(held);
}

void ResponseStore::forget_old(Clock::time_point now) {
  while (!order_.empty() && order_.front().until <= now) forget(order_.begin());
}

void ResponseStore::make_room(std::size_t num_bytes, ConnectionId owner) {
  while (!order_.empty() &&
         (num_bytes_ + num_bytes > limits_.bytes_max || order_.size() >= limits_.num_max)) {
    const auto owned = shares_.find(owner);
    const bool has_much =
        owned != shares_.end() && (owned->second.num_bytes > limits_.bytes_max / 2 ||
                                   owned->second.num > limits_.num_max / 2);
    auto oldest = order_.begin();
    while (has_much && oldest->response->owner != owner) ++oldest;
    forget(oldest);
  }
}

void ResponseStore::begin(const std::string& id, ConnectionId owner) {
  const std::lock_guard lock(mutex_);
  writing_[id] = {owner};
}

void ResponseStore::end(const std::string& id) {
  const std::lock_guard lock(mutex_);
  writing_.erase(id);
}

void ResponseStore::put(StoredResponse response, Clock::time_point now) {
  const std::size_t num_bytes = response.num_bytes();
  const std::lock_guard lock(mutex_);
  const auto written = writing_.extract(response.id);
  const bool is_erased = !written.empty() && written.mapped().is_erased;
  if (is_erased || !takes(num_bytes)) return;
  forget_old(now);
  make_room(num_bytes, response.owner);
  num_bytes_ += num_bytes;
  Share& share = shares_[response.owner];
  share.num_bytes += num_bytes;
  ++share.num;
  auto kept = std::make_shared<const StoredResponse>(std::move(response));
  order_.push_back({kept, now + limits_.lifetime});
  by_id_[kept->id] = std::prev(order_.end());
}

ResponseStore::Order::iterator ResponseStore::held_by(const std::string& id, ConnectionId owner) {
  const auto found = by_id_.find(id);
  const bool is_owned = found != by_id_.end() && found->second->response->owner == owner;
  return is_owned ? found->second : order_.end();
}

std::shared_ptr<const StoredResponse> ResponseStore::find(const std::string& id, ConnectionId owner,
                                                          Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  forget_old(now);
  const auto held = held_by(id, owner);
  return held == order_.end() ? nullptr : held->response;
}

bool ResponseStore::erase(const std::string& id, ConnectionId owner, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  forget_old(now);
  const auto writing = writing_.find(id);
  if (writing != writing_.end() && writing->second.owner == owner) {
    return !std::exchange(writing->second.is_erased, true);
  }
  const auto held = held_by(id, owner);
  if (held == order_.end()) return false;
  forget(held);
  return true;
}

}  // namespace lmtp::server
