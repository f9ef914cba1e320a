#include "tickets.h"

#include <openssl/rand.h>

#include <array>
#include <utility>

namespace lmtp::server {

Result<std::string> Tickets::issue(const std::shared_ptr<Account>& account, Time now) {
  KeyDigest bits{};
  constexpr std::size_t kNumBytes = 16;
  if (RAND_bytes(bits.data(), kNumBytes) != 1) {
    return Error{ErrorCode::kUnavailable, "the system has no random bits"};
  }
  std::string ticket = hex_of(bits).substr(0, 2 * kNumBytes);
  if (account == nullptr) return ticket;
  const std::lock_guard lock(mutex_);
  std::erase_if(held_, [&](const auto& row) { return now - row.second.issued > kTicketTime; });
  std::size_t num_own = 0;
  auto oldest = held_.end();
  for (auto at = held_.begin(); at != held_.end(); ++at) {
    if (at->second.account != account) continue;
    ++num_own;
    if (oldest == held_.end() || at->second.issued < oldest->second.issued) oldest = at;
  }
  if (num_own >= kTicketsOfKeyMax) held_.erase(oldest);
  held_[digest_of(ticket)] = {account, now};
  return ticket;
}

std::shared_ptr<Account> Tickets::take(std::string_view ticket, Time now) {
  if (ticket.size() > kKeyBytesMax) return nullptr;
  const KeyDigest digest = digest_of(ticket);
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(digest);
  if (found == held_.end()) return nullptr;
  const Held held = std::move(found->second);
  held_.erase(found);
  const bool counts = now - held.issued <= kTicketTime && !held.account->is_revoked();
  return counts ? held.account : nullptr;
}

std::size_t Tickets::size() const {
  const std::lock_guard lock(mutex_);
  return held_.size();
}

}  // namespace lmtp::server
