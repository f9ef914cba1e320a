// From whom a request comes.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "lmtp/base/ids.h"
#include "lmtp/request/account.h"

namespace lmtp {

// Shared by all requests of one connection, or of one HTTP request.
struct Caller {
  std::shared_ptr<Account> account;  // null: the server asks for no key
  std::string address;               // as the log has it: "192.0.2.7"
  std::string route;                 // of HTTP: "POST /v1/completions"; empty: LMTP
  bool log_prompts = false;          // the beginning of its prompts stands in the log
  // A line of the log has told of it: set by whoever writes one.
  mutable std::atomic<bool> is_logged = false;
};

// Whose fair share a connection's requests count for: its key's, or its own.
inline ConnectionId share_of(const Caller* caller, ConnectionId connection) {
  const bool has_key = caller != nullptr && caller->account != nullptr;
  return has_key ? caller->account->share() : connection;
}

}  // namespace lmtp
