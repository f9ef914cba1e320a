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
  // The client's X-Request-Id, else the answer's id or some other that is fresh; empty: LMTP.
  std::string request_id;
  bool has_own_id = false;   // the first of these
  std::string answer_id;     // empty: the answer has none
  std::string trace_id;      // of the client's traceparent; empty: it sent none
  bool log_prompts = false;  // the beginning of its prompts stands in the log
  // A line of the log has told of it: set by whoever writes one.
  mutable std::atomic<bool> is_logged = false;
};

// What a line of the log says of them: ", id ...", or nothing.
inline std::string ids_text(const Caller& caller) {
  std::string text;
  if (!caller.request_id.empty()) text += ", id " + caller.request_id;
  if (caller.has_own_id && !caller.answer_id.empty()) text += " (" + caller.answer_id + ")";
  if (!caller.trace_id.empty()) text += ", trace " + caller.trace_id;
  return text;
}

// Whose fair share a connection's requests count for: its key's, or its own.
inline ConnectionId share_of(const Caller* caller, ConnectionId connection) {
  const bool has_key = caller != nullptr && caller->account != nullptr;
  return has_key ? caller->account->share() : connection;
}

}  // namespace lmtp
