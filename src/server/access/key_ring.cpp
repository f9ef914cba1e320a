#include "key_ring.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <utility>

#include "lmtp/base/ids.h"

namespace lmtp::server {
namespace {

// Connections are counted from 1 and never come so far.
constexpr ConnectionId kFirstShare = ConnectionId{1} << 63;

bool are_equal(const KeyDigest& a, const KeyDigest& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

KeyRing::KeyRing(const std::vector<std::string>& keys, std::string path, bool own_caches)
    : path_(std::move(path)), own_caches_(own_caches) {
  for (const std::string& key : keys) {
    AccountLimits limits;
    limits.is_admin = true;
    given_.push_back(
        {"api-key-" + std::to_string(given_.size() + 1), digest_of(key), std::move(limits)});
  }
}

Result<void> KeyRing::load() {
  std::vector<KeyEntry> entries = given_;
  if (!path_.empty()) {
    Result<std::vector<KeyEntry>> read = read_key_file(path_);
    if (!read) return read.error();
    for (KeyEntry& entry : *read) entries.push_back(std::move(entry));
  }
  const std::shared_ptr<const Keys> before = keys();
  auto after = std::make_shared<Keys>();
  for (KeyEntry& entry : entries) {
    entry.limits.has_own_cache = own_caches_;
    const auto same = std::ranges::find_if(*before, [&](const Held& held) {
      return held.account->name() == entry.name && are_equal(held.digest, entry.digest);
    });
    if (same != before->end()) {
      same->account->set(std::move(entry.limits));
      after->push_back(*same);
    } else {
      after->push_back({entry.digest, std::make_shared<Account>(std::move(entry.name),
                                                                kFirstShare + num_accounts_++,
                                                                std::move(entry.limits))});
    }
  }
  for (const Held& held : *before) {
    const auto stays = [&](const Held& other) { return other.account == held.account; };
    if (std::ranges::none_of(*after, stays)) held.account->revoke();
  }
  const std::lock_guard lock(mutex_);
  keys_ = std::move(after);
  return {};
}

std::shared_ptr<Account> KeyRing::find(std::string_view key) const {
  if (key.size() > kKeyBytesMax) return nullptr;
  const KeyDigest digest = digest_of(key);
  const std::shared_ptr<const Keys> all = keys();
  const Held* found = nullptr;
  for (const Held& held : *all) {  // to the end, wherever it is
    const bool is_it = are_equal(held.digest, digest);
    found = is_it ? &held : found;
  }
  return found != nullptr ? found->account : nullptr;
}

}  // namespace lmtp::server
