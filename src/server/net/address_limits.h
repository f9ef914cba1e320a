// How many connections and requests one address may have.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "lmtp/base/runtime.h"

namespace lmtp::server {

// An IPv4 address, or the first 64 bits of one of IPv6, which are a customer's; nothing for a Unix
// socket.
std::optional<std::uint64_t> address_key(const boost::asio::generic::stream_protocol::endpoint& of);

// Owner: the server's context. Any thread.
class AddressLimits {
 public:
  using Clock = runtime::Clock;

  // Requests may come in bursts of what so many seconds allow.
  static constexpr double kBurstSeconds = 10;
  // Who is over a limit gets an answer so many times a second, and beyond that none.
  static constexpr double kRefusalsPerSecond = 10;
  // Addresses that are known at a time; at more, those without connections are forgotten.
  static constexpr std::size_t kAddressesMax = 65'536;

  // 0: no limit.
  AddressLimits(int max_connections, double requests_per_second)
      : max_connections_(max_connections), requests_per_second_(requests_per_second) {}

  // A connection as its address counts it, until it is destroyed. The limits outlive it.
  class Seat {
   public:
    Seat() = default;
    Seat(Seat&& other) noexcept;
    Seat& operator=(Seat&&) = delete;
    ~Seat();

    // Counts one more request. The seconds after which it may come again; 0: it may now.
    int take_request(Clock::time_point now = Clock::now()) const;

   private:
    friend class AddressLimits;
    AddressLimits* limits_ = nullptr;  // null: it has no address, or there are no limits
    std::uint64_t key_ = 0;
  };

  // A new connection, which counts as its first request too.
  struct Admission {
    Seat seat;
    int retry_after_s = 0;    // 0: it is let in; else the seconds after which it may come again
    bool is_answered = true;  // whether to say so
  };
  Admission admit(std::optional<std::uint64_t> key, Clock::time_point now = Clock::now());

  std::size_t num_addresses() const;

 private:
  struct Bucket {
    double num_left = 0;
    Clock::time_point since;
  };
  struct Address {
    int num_connections = 0;
    Bucket requests;
    Bucket refusals;
  };

  static double fill(Bucket& bucket, double per_second, double most, Clock::time_point now);
  int take_request(Address& address, Clock::time_point now) const;
  void leave(std::uint64_t key);

  const int max_connections_;
  const double requests_per_second_;
  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, Address> addresses_;
};

}  // namespace lmtp::server
