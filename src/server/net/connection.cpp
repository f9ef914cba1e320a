#include "connection.h"

#include <algorithm>
#include <utility>

namespace lmtp::server {

std::string why_given_up(Held what) {
  const bool is_write = what == Held::kWriteQueue;
  return std::string(is_write ? "what waits to be sent" : "unfinished messages") +
         " of all clients take too much memory, and this one" +
         (is_write ? "'s most of it" : " is the oldest");
}

ConnectionRegistry::Place::Place(Place&& other) noexcept
    : registry_(std::exchange(other.registry_, nullptr)),
      id_(other.id_),
      seat_(std::move(other.seat_)) {}

ConnectionRegistry::Place::~Place() {
  if (registry_ == nullptr) return;
  const std::lock_guard lock(registry_->mutex_);
  registry_->connections_.erase(id_);
}

bool ConnectionRegistry::Place::fill(const std::weak_ptr<Connection>& connection) {
  const std::lock_guard lock(registry_->mutex_);
  if (registry_->stopping_) return false;
  registry_->connections_.insert_or_assign(id_, connection);
  return true;
}

std::size_t ConnectionRegistry::size() const {
  const std::lock_guard lock(mutex_);
  return connections_.size();
}

// The caller must not hold the lock when it lets go of them: the last reference to a connection
// ends its place.
std::vector<std::shared_ptr<Connection>> ConnectionRegistry::open() const {
  std::vector<std::shared_ptr<Connection>> open;
  const std::lock_guard lock(mutex_);
  open.reserve(connections_.size());
  for (const auto& [id, weak] : connections_) {
    if (std::shared_ptr<Connection> connection = weak.lock()) open.push_back(std::move(connection));
  }
  return open;
}

void ConnectionRegistry::add_client(ConnectionId share) {
  const std::lock_guard lock(mutex_);
  ++clients_[share];
  num_clients_ = static_cast<int>(clients_.size());
}

void ConnectionRegistry::remove_client(ConnectionId share) {
  const std::lock_guard lock(mutex_);
  if (--clients_[share] == 0) clients_.erase(share);
  num_clients_ = static_cast<int>(clients_.size());
}

void ConnectionRegistry::drop_revoked() {
  for (const std::shared_ptr<Connection>& connection : open()) connection->drop_if_revoked();
}

void ConnectionRegistry::shut_down_all() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  for (const std::shared_ptr<Connection>& connection : open()) connection->shut_down();
}

void ConnectionRegistry::drop_all() {
  for (const std::shared_ptr<Connection>& connection : open()) connection->drop();
}

void ConnectionRegistry::log_closed(ConnectionId id, const std::string& why) {
  closed_log_.warning("connection " + std::to_string(id) + ": closed: " + why);
}

void ConnectionRegistry::reclaim(Held what) {
  std::vector<std::pair<Holding, std::shared_ptr<Connection>>> holders;
  std::size_t sum = 0;
  for (std::shared_ptr<Connection>& connection : open()) {
    const Holding holding = connection->holding(what);
    sum += holding.bytes;
    if (holding.bytes > 0) holders.emplace_back(holding, std::move(connection));
  }
  if (holders.empty()) return;
  const std::size_t least = sum / holders.size() / 2;
  const auto first = std::min_element(holders.begin(), holders.end(),
                                      [what, least](const auto& left, const auto& right) {
                                        const Holding& a = left.first;
                                        const Holding& b = right.first;
                                        if (what == Held::kWriteQueue) return a.bytes > b.bytes;
                                        if ((a.bytes >= least) != (b.bytes >= least)) {
                                          return a.bytes >= least;
                                        }
                                        return a.since < b.since;
                                      });
  first->second->give_up(what);
}

}  // namespace lmtp::server
