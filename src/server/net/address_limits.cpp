#include "address_limits.h"

#include <netinet/in.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace lmtp::server {
namespace {

constexpr std::uint64_t kIpv4 = std::uint64_t{0xffff} << 32;  // as the end of ::ffff:a.b.c.d

std::uint64_t big_endian(const std::uint8_t* bytes, int count) {
  std::uint64_t number = 0;
  for (int i = 0; i < count; ++i) number = number << 8 | bytes[i];
  return number;
}

}  // namespace

std::optional<std::uint64_t> address_key(
    const boost::asio::generic::stream_protocol::endpoint& of) {
  if (of.protocol().family() == AF_INET) {
    sockaddr_in address{};
    std::memcpy(&address, of.data(), std::min(sizeof(address), of.size()));
    return kIpv4 | ntohl(address.sin_addr.s_addr);
  }
  if (of.protocol().family() != AF_INET6) return std::nullopt;
  sockaddr_in6 address{};
  std::memcpy(&address, of.data(), std::min(sizeof(address), of.size()));
  const std::uint8_t* const bytes = address.sin6_addr.s6_addr;
  return IN6_IS_ADDR_V4MAPPED(&address.sin6_addr) ? big_endian(bytes + 8, 8) : big_endian(bytes, 8);
}

AddressLimits::Seat::Seat(Seat&& other) noexcept
    : limits_(std::exchange(other.limits_, nullptr)), key_(other.key_) {}

AddressLimits::Seat::~Seat() {
  if (limits_ != nullptr) limits_->leave(key_);
}

int AddressLimits::Seat::take_request(Clock::time_point now) const {
  if (limits_ == nullptr) return 0;
  const std::lock_guard lock(limits_->mutex_);
  return limits_->take_request(limits_->addresses_[key_], now);
}

AddressLimits::Admission AddressLimits::admit(std::optional<std::uint64_t> key,
                                              Clock::time_point now) {
  Admission admission;
  if (!key || (max_connections_ == 0 && requests_per_second_ == 0)) return admission;
  const std::lock_guard lock(mutex_);
  if (addresses_.size() >= kAddressesMax && !addresses_.contains(*key)) {
    std::erase_if(addresses_, [](const auto& known) { return known.second.num_connections == 0; });
  }
  Address& address = addresses_[*key];
  ++address.num_connections;
  admission.seat.limits_ = this;
  admission.seat.key_ = *key;
  const bool is_full = max_connections_ > 0 && address.num_connections > max_connections_;
  admission.retry_after_s = is_full ? 1 : take_request(address, now);
  if (admission.retry_after_s > 0) {
    double& num_left = address.refusals.num_left;
    admission.is_answered =
        fill(address.refusals, kRefusalsPerSecond, kRefusalsPerSecond, now) >= 1;
    if (admission.is_answered) --num_left;
  }
  return admission;
}

// What is in it now. A new one is full.
double AddressLimits::fill(Bucket& bucket, double per_second, double most, Clock::time_point now) {
  const std::chrono::duration<double> passed = now - bucket.since;
  const bool is_new = bucket.since == Clock::time_point();
  bucket.num_left = is_new ? most : std::min(most, bucket.num_left + passed.count() * per_second);
  bucket.since = now;
  return bucket.num_left;
}

int AddressLimits::take_request(Address& address, Clock::time_point now) const {
  if (requests_per_second_ == 0) return 0;
  const double most = std::max(1.0, kBurstSeconds * requests_per_second_);
  const double num_left = fill(address.requests, requests_per_second_, most, now);
  if (num_left < 1) return static_cast<int>(std::ceil((1 - num_left) / requests_per_second_));
  --address.requests.num_left;
  return 0;
}

void AddressLimits::leave(std::uint64_t key) {
  const std::lock_guard lock(mutex_);
  --addresses_[key].num_connections;
}

std::size_t AddressLimits::num_addresses() const {
  const std::lock_guard lock(mutex_);
  return addresses_.size();
}

}  // namespace lmtp::server
