// Two look-ups: the most recently used biases are compared with the text byte by byte, which needs
// no parsing; the others are found by a 128-bit hash of the whole text and then compared as well,
// so that a collision costs only time.
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <list>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "lmtp/protocol/codec.h"

namespace lmtp::protocol {
namespace {

// LMQL's programs use a handful of masks at a time.
constexpr std::size_t kNumRecent = 8;
// List and map nodes, hash and the vectors' headers of one entry, roughly.
constexpr std::size_t kEntryOverheadBytes = 256;

struct Entry {
  XXH128_hash_t hash;
  std::string text;
  std::shared_ptr<const LogitBias> bias;

  std::size_t num_bytes() const {
    return text.size() + bias->ids.size() * (sizeof(TokenId) + sizeof(float)) + kEntryOverheadBytes;
  }
};

struct HashOfHash {
  std::size_t operator()(const XXH128_hash_t& hash) const { return hash.low64; }
};

struct EqualHash {
  bool operator()(const XXH128_hash_t& a, const XXH128_hash_t& b) const {
    return XXH128_isEqual(a, b) != 0;
  }
};

using EntryPtr = std::shared_ptr<const Entry>;

}  // namespace

struct BiasCache::Impl {
  explicit Impl(std::size_t max_bytes_in) : max_bytes(max_bytes_in) {}

  // REQUIRES: the mutex is held, for all below.
  void touch(std::list<EntryPtr>::iterator at) {
    entries.splice(entries.begin(), entries, at);
    remember(*at);
  }

  void remember(const EntryPtr& entry) {
    const auto found = std::find(recent.begin(), recent.end(), entry);
    const auto end = found == recent.end() ? found - 1 : found;
    std::rotate(recent.begin(), end, end + 1);
    recent.front() = entry;
  }

  void evict_beyond_limit() {
    while (num_bytes > max_bytes && !entries.empty()) {
      const EntryPtr& last = entries.back();
      num_bytes -= last->num_bytes();
      std::replace(recent.begin(), recent.end(), last, EntryPtr());
      by_hash.erase(last->hash);
      entries.pop_back();
    }
  }

  const std::size_t max_bytes;
  std::mutex mutex;
  std::list<EntryPtr> entries;  // most recently used first
  std::unordered_map<XXH128_hash_t, std::list<EntryPtr>::iterator, HashOfHash, EqualHash> by_hash;
  std::array<EntryPtr, kNumRecent> recent;  // most recently used first; null: empty
  std::size_t num_bytes = 0;
};

BiasCache::BiasCache(std::size_t max_bytes) : impl_(std::make_unique<Impl>(max_bytes)) {}
BiasCache::~BiasCache() = default;

std::shared_ptr<const LogitBias> BiasCache::find(std::string_view object_text) {
  const XXH128_hash_t hash = XXH3_128bits(object_text.data(), object_text.size());
  EntryPtr entry;
  {
    const std::lock_guard lock(impl_->mutex);
    const auto found = impl_->by_hash.find(hash);
    if (found == impl_->by_hash.end()) return nullptr;
    entry = *found->second;
    impl_->touch(found->second);
  }
  return entry->text == object_text ? entry->bias : nullptr;
}

BiasCache::PrefixHit BiasCache::find_at_front(std::string_view text) {
  std::array<EntryPtr, kNumRecent> recent;
  {
    const std::lock_guard lock(impl_->mutex);
    recent = impl_->recent;
  }
  for (const EntryPtr& entry : recent) {
    if (!entry || entry->text.size() > text.size()) continue;
    if (std::memcmp(entry->text.data(), text.data(), entry->text.size()) != 0) continue;
    const std::lock_guard lock(impl_->mutex);
    const auto found = impl_->by_hash.find(entry->hash);
    if (found != impl_->by_hash.end()) impl_->touch(found->second);
    return {entry->bias, entry->text.size()};
  }
  return {};
}

void BiasCache::insert(std::string_view object_text, std::shared_ptr<const LogitBias> bias) {
  auto entry = std::make_shared<Entry>();
  entry->hash = XXH3_128bits(object_text.data(), object_text.size());
  entry->text = std::string(object_text);
  entry->bias = std::move(bias);
  if (entry->num_bytes() > impl_->max_bytes) return;
  const std::lock_guard lock(impl_->mutex);
  if (impl_->by_hash.contains(entry->hash)) return;
  impl_->entries.push_front(entry);
  impl_->by_hash.emplace(entry->hash, impl_->entries.begin());
  impl_->remember(impl_->entries.front());
  impl_->num_bytes += entry->num_bytes();
  impl_->evict_beyond_limit();
}

}  // namespace lmtp::protocol
