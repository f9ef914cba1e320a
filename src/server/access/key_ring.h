// KeyRing: which API keys are accepted, and whose they are.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "key_file.h"
#include "lmtp/base/result.h"
#include "lmtp/request/account.h"

namespace lmtp::server {

// Of a key only its digest is kept. Owner: the server's context. load() from one thread, the rest
// from any.
class KeyRing {
 public:
  // `keys`: each has every right and no limit, and is named api-key-1 and so on. `path`: of a key
  // file; empty: none. own_caches: AccountLimits::has_own_cache of all.
  KeyRing(const std::vector<std::string>& keys, std::string path, bool own_caches = false);

  // Whether every request needs a key. It is decided at the start.
  bool is_required() const { return !given_.empty() || !path_.empty(); }

  // Reads the key file, again too; on an error all stays as it was. A name with the same key keeps
  // its account; accounts that are not there any more are revoked.
  Result<void> load();

  // Null: the key is not accepted. Takes the same time for every key of its length.
  std::shared_ptr<Account> find(std::string_view key) const;

 private:
  struct Held {
    KeyDigest digest{};
    std::shared_ptr<Account> account;
  };
  using Keys = std::vector<Held>;

  std::shared_ptr<const Keys> keys() const {
    const std::lock_guard lock(mutex_);
    return keys_;
  }

  std::vector<KeyEntry> given_;
  const std::string path_;
  const bool own_caches_;
  std::uint64_t num_accounts_ = 0;
  mutable std::mutex mutex_;
  std::shared_ptr<const Keys> keys_ = std::make_shared<Keys>();
};

}  // namespace lmtp::server
