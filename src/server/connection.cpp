#include "connection.h"

#include <vector>

namespace lmtp::server {

bool ConnectionRegistry::add(ConnectionId id, const std::weak_ptr<Connection>& connection) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return false;
  connections_.insert_or_assign(id, connection);
  return true;
}

void ConnectionRegistry::remove(ConnectionId id) {
  const std::lock_guard lock(mutex_);
  connections_.erase(id);
}

std::size_t ConnectionRegistry::size() const {
  const std::lock_guard lock(mutex_);
  return connections_.size();
}

void ConnectionRegistry::shut_down_all() {
  std::vector<std::shared_ptr<Connection>> open;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (const auto& [id, weak] : connections_) {
      if (std::shared_ptr<Connection> connection = weak.lock()) {
        open.push_back(std::move(connection));
      }
    }
  }
  for (const std::shared_ptr<Connection>& connection : open) connection->shut_down();
}

}  // namespace lmtp::server
