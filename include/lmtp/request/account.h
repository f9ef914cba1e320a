// Accounts: what the requests with one API key may have of the server, and what they have now.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"
#include "lmtp/base/runtime.h"

namespace lmtp {

struct AccountLimits {
  bool is_admin = false;
  int max_streams = 0;                 // at a time; 0: no limit
  std::int64_t tokens_per_minute = 0;  // of prompts and generated; 0: no limit
  // No other key's requests find its prefixes and scores, nor it theirs.
  bool has_own_cache = false;
  // Patterns of names, as a shell's; nullopt: any model.
  std::optional<std::vector<std::string>> models;
};

// Owner: shared by the key's holder and by all that is under way with it. Any thread.
class Account {
 public:
  using Clock = runtime::Clock;

  // `share`: of the fair shares, its own; no connection has that id.
  Account(std::string name, ConnectionId share, AccountLimits limits);

  const std::string& name() const { return name_; }
  ConnectionId share() const { return share_; }

  // The limits have changed; what is under way goes on.
  void set(AccountLimits limits);
  // The key is not accepted any more.
  void revoke();
  bool is_revoked() const;

  bool is_admin() const;
  bool has_own_cache() const;
  // Whether a model may be asked for by that name. One with a part ".." must be listed as it is.
  bool may_use(const std::string& model) const;
  // Whether it may ask for some models alone: the names of others are not for it.
  bool is_limited() const;
  // The patterns, for errors: "'demo', 'org/*'".
  std::string models_text() const;

  // A stream begins that has so many tokens to be read. While there are tokens left it may take
  // more than that: the debt is waited for.
  Result<void> begin(std::int64_t num_tokens, Clock::time_point now = Clock::now());
  // Another sequence of what has begun, with so many tokens that were not counted then. It needs
  // none left.
  Result<void> begin_part(std::int64_t num_tokens);
  // It has not begun after all.
  void undo(std::int64_t num_tokens) noexcept;
  void generated(std::int64_t num_tokens) noexcept;
  // Negative: they have not ended after all.
  void ended(int num_streams) noexcept;

 private:
  Result<void> add_stream();
  void refill(Clock::time_point now);

  const std::string name_;
  const ConnectionId share_;
  mutable std::mutex mutex_;
  AccountLimits limits_;
  bool revoked_ = false;
  int num_streams_ = 0;
  double num_tokens_ = 0.0;  // left of those of a minute; negative: a debt
  Clock::time_point refilled_ = Clock::now();
};

}  // namespace lmtp
