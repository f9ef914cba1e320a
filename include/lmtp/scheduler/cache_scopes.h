// CacheScopes: which sequences find each other's prefixes and scores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <unordered_map>

namespace lmtp::scheduler {

// What a sequence computes is kept in a namespace (PrefixCache, ScoreCache): its adapter's number,
// or, where its request has a salt, another one for each adapter and salt. The namespaces of the
// salts used last are known; of one that is forgotten nothing is found any more, and what it left
// is evicted in turn. Owner: the scheduler. One thread.
class CacheScopes {
 public:
  static constexpr std::size_t kScopesMax = 4096;
  static constexpr int kFirst = 1 << 30;  // above all numbers of adapters
  // Numbers come again after so many. A salt gets another one after half of them, so that so many
  // others have left their blocks, more than any cache has, since a number was in use before.
  static constexpr std::uint64_t kNumbers = std::uint64_t{1} << 29;

  // The namespace of an adapter (AdapterPlaces' number, 0: none) and a salt; empty: none.
  int name_space(int adapter, const std::string& salt);

 private:
  struct Scope {
    std::string name;
    std::uint64_t serial = 0;
  };

  std::list<Scope> scopes_;  // the one used last first
  std::unordered_map<std::string, std::list<Scope>::iterator> by_name_;
  std::uint64_t next_ = 0;
};

}  // namespace lmtp::scheduler
