// Tickets: each stands for a key once, for a WebSocket of a browser, which can send no field.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "key_file.h"
#include "lmtp/base/result.h"
#include "lmtp/base/runtime.h"
#include "lmtp/request/account.h"

namespace lmtp::server {

inline constexpr std::chrono::seconds kTicketTime{30};
inline constexpr std::size_t kTicketsOfKeyMax = 16;  // beyond it the key's oldest is no more

// Owner: the server's context. Any thread. Only digests of tickets are kept, as of keys.
class Tickets {
 public:
  using Time = runtime::Clock::time_point;

  // 32 random hex digits. `account` null: the server has no keys, and nothing is kept.
  Result<std::string> issue(const std::shared_ptr<Account>& account, Time now);

  // Whose it is, once; null: it is unknown, used, too old, or its key is not accepted any more.
  std::shared_ptr<Account> take(std::string_view ticket, Time now);

  std::size_t size() const;

 private:
  struct Held {
    std::shared_ptr<Account> account;
    Time issued;
  };

  mutable std::mutex mutex_;
  std::map<KeyDigest, Held> held_;
};

}  // namespace lmtp::server
