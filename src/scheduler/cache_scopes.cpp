#include "lmtp/scheduler/cache_scopes.h"

#include <utility>

namespace lmtp::scheduler {

int CacheScopes::name_space(int adapter, const std::string& salt) {
  if (salt.empty()) return adapter;
  std::string name = std::to_string(adapter) + ' ' + salt;
  const auto found = by_name_.find(name);
  if (found != by_name_.end()) {
    scopes_.splice(scopes_.begin(), scopes_, found->second);
  } else {
    if (scopes_.size() == kScopesMax) {
      by_name_.erase(scopes_.back().name);
      scopes_.pop_back();
    }
    scopes_.push_front({.name = name, .serial = next_++});
    by_name_.emplace(std::move(name), scopes_.begin());
  }
  Scope& scope = scopes_.front();
  if (next_ - scope.serial > kNumbers / 2) scope.serial = next_++;
  return kFirst + static_cast<int>(scope.serial % kNumbers);
}

}  // namespace lmtp::scheduler
