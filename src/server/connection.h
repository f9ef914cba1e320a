// What is open: every socket that was accepted, so that the server can count and close them.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "lmtp/base/ids.h"

namespace lmtp::server {

// One accepted socket, speaking HTTP or, later, WebSocket.
class Connection {
 public:
  virtual ~Connection() = default;
  // The server stops: say goodbye and close, within seconds. Any thread; returns at once.
  virtual void shut_down() = 0;
};

// Owner: the server's context. Any thread.
class ConnectionRegistry {
 public:
  ConnectionId next_id() { return next_id_.fetch_add(1, std::memory_order_relaxed); }

  // False where the server is stopping: the connection must not start.
  bool add(ConnectionId id, const std::weak_ptr<Connection>& connection);
  void remove(ConnectionId id);
  std::size_t size() const;

  // Refuses new ones from now on and tells those that are there to shut down.
  void shut_down_all();

 private:
  std::atomic<ConnectionId> next_id_ = 1;
  mutable std::mutex mutex_;
  std::unordered_map<ConnectionId, std::weak_ptr<Connection>> connections_;
  bool stopping_ = false;
};

}  // namespace lmtp::server
