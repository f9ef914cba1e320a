// The accepted sockets that are open, so that the server can count and close them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/log.h"
#include "lmtp/base/runtime.h"
#include "net/address_limits.h"

namespace lmtp::server {

// Kinds of memory that have a limit over all connections.
enum class Held { kUnfinishedMessage, kWriteQueue };

struct Holding {
  std::size_t bytes = 0;             // that giving up would free
  runtime::Clock::time_point since;  // of an unfinished message: when it began
};

// Why the connection that is chosen is closed.
std::string why_given_up(Held what);

// One accepted socket, speaking HTTP or, later, WebSocket. Any thread may call; all return at once.
class Connection {
 public:
  virtual ~Connection() = default;
  // The server stops: say goodbye and close, within seconds.
  virtual void shut_down() = 0;
  // Close now, whatever is under way.
  virtual void drop() = 0;

  virtual Holding holding(Held /*what*/) const { return {}; }
  // Keys have been read again.
  virtual void drop_if_revoked() {}
  // Others need the memory: what is held counts no longer, and the connection closes.
  virtual void give_up(Held /*what*/) {}
};

// Owner: the server's context. Any thread.
class ConnectionRegistry {
 public:
  // A socket's place in the registry, as long as there is a descriptor. It passes from the HTTP
  // session to the WebSocket session: one socket is never counted twice.
  class Place {
   public:
    // `seat`: where its address counts it.
    explicit Place(ConnectionRegistry& registry, AddressLimits::Seat seat = {})
        : registry_(&registry), id_(registry.next_id()), seat_(std::move(seat)) {}
    ~Place();
    Place(Place&& other) noexcept;
    Place& operator=(Place&&) = delete;

    ConnectionId id() const { return id_; }
    const AddressLimits::Seat& seat() const { return seat_; }
    // Sets the session of the socket. False: the server is stopping, and it must not start.
    bool fill(const std::weak_ptr<Connection>& connection);

   private:
    ConnectionRegistry* registry_;  // null: moved from
    const ConnectionId id_;
    AddressLimits::Seat seat_;
  };

  std::size_t size() const;
  // A number that no connection has had or will have.
  ConnectionId next_id() { return next_id_++; }

  // Clients that may have requests in flight, by share_of(): each key, or each connection without
  // one, counts once while it has a session.
  void add_client(ConnectionId share);
  void remove_client(ConnectionId share);
  int num_clients() const { return num_clients_; }

  // Refuses new connections from now on and shuts down the open ones.
  void shut_down_all();
  // Drops those that are still open.
  void drop_all();
  // Closes those whose key is not accepted any more.
  void drop_revoked();

  // Logs that a connection is closed for its client's misbehaviour. Rate-limited: clients can cause
  // it at will.
  void log_closed(ConnectionId id, const std::string& why);

  // One of them gives up what it holds: the longest write queue, and the message that has been
  // unfinished for longest of those at least half as long as they are on average. A large message
  // on its way is not closed for many small ones that do not end, nor a small one that is slow for
  // a few large ones.
  void reclaim(Held what);

 private:
  std::vector<std::shared_ptr<Connection>> open() const;

  std::atomic<ConnectionId> next_id_ = 1;
  std::atomic<int> num_clients_ = 0;
  mutable std::mutex mutex_;
  std::unordered_map<ConnectionId, int> clients_;  // sessions by share
  std::unordered_map<ConnectionId, std::weak_ptr<Connection>> connections_;
  bool stopping_ = false;
  log::RateLimited closed_log_;
};

}  // namespace lmtp::server
