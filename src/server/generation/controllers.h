// What a request needs of a controller of AICI, whichever protocol it comes by.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lmtp/aici/runtime.h"
#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"
#include "lmtp/request/caller.h"

namespace lmtp::server {

// By the caller's key. Without keys all are one user, who may do everything.
inline aici::Auth auth_of(const Caller* caller) {
  if (caller == nullptr || caller->account == nullptr) return {.is_admin = true};
  return {.user = caller->account->name(), .is_admin = caller->account->is_admin()};
}

// About the field `controller`.
inline Error of_controller(const Error& error) {
  const bool has_field = error.message.starts_with("controller");
  return {error.code, has_field ? error.message : "controller: " + error.message, error.wait_ms};
}

// The prompt becomes what the controller makes of it; whether that is another one.
inline bool take_prompt(aici::Instantiated& done, std::vector<TokenId>& prompt) {
  const bool changes = done.prompt || !done.appended.empty();
  if (done.prompt) prompt = std::move(*done.prompt);
  prompt.insert(prompt.end(), done.appended.begin(), done.appended.end());
  return changes;
}

}  // namespace lmtp::server
