// The answers of /v1/responses that may be asked for again, in memory.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "lmtp/base/ids.h"
#include "lmtp/base/runtime.h"

namespace lmtp::server {

struct StoredResponse {
  std::string id = {};      // of 128 random bits
  ConnectionId owner = {};  // the share of the key it was asked for with; 0: the server has no keys
  std::string body = {};    // JSON
  // JSON arrays of items: all that the prompt was made of, what earlier responses had among it; and
  // what was answered.
  std::string input = {};
  std::string output = {};

  std::size_t num_bytes() const {
    return sizeof(*this) + id.size() + body.size() + input.size() + output.size();
  }
};

// What is kept has an end: of so many, so many bytes, for so long. Whoever asks for a response
// reads all of it.
struct StoreLimits {
  std::size_t num_max = 4096;
  std::size_t bytes_max = std::size_t{64} << 20;  // one response: a sixteenth of them
  std::chrono::seconds lifetime = std::chrono::hours(1);
};

// Where there is no more room the oldest are forgotten, of the key itself where it has more than
// half of the bytes, or of the number. Owner: the server's context. Any thread.
class ResponseStore {
 public:
  using Clock = runtime::Clock;
  using Limits = StoreLimits;

  explicit ResponseStore(Limits limits = {}) : limits_(limits) {}

  // One that is being written: nobody finds it, and erase() has it forgotten.
  void begin(const std::string& id, ConnectionId owner);
  // It ends without being kept, or has ended.
  void end(const std::string& id);
  // Whether one of so many bytes is kept.
  bool takes(std::size_t num_bytes) const { return num_bytes <= limits_.bytes_max / 16; }

  // It is kept unless it is too large, or was begun and erased since.
  void put(StoredResponse response, Clock::time_point now = Clock::now());
  // Null: there is none, or it is another key's.
  std::shared_ptr<const StoredResponse> find(const std::string& id, ConnectionId owner,
                                             Clock::time_point now = Clock::now());
  // Also one that is being written. False: as above.
  bool erase(const std::string& id, ConnectionId owner, Clock::time_point now = Clock::now());

 private:
  struct Held {
    std::shared_ptr<const StoredResponse> response;
    Clock::time_point until;
  };
  using Order = std::list<Held>;  // the oldest first

  // REQUIRES: the mutex is held.
  void forget(Order::iterator held);
  void forget_old(Clock::time_point now);
  void make_room(std::size_t num_bytes, ConnectionId owner);
  Order::iterator held_by(const std::string& id, ConnectionId owner);

  const Limits limits_;
  std::mutex mutex_;
  Order order_;
  std::unordered_map<std::string, Order::iterator> by_id_;
  struct Share {
    std::size_t num_bytes = 0;
    std::size_t num = 0;
  };
  std::unordered_map<ConnectionId, Share> shares_;
  struct Writing {
    ConnectionId owner = {};
    bool is_erased = false;
  };
  std::unordered_map<std::string, Writing> writing_;
  std::size_t num_bytes_ = 0;
};

}  // namespace lmtp::server
