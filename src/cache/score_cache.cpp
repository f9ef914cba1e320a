#include "lmtp/cache/score_cache.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

#include "hash.h"
#include "lmtp/base/check.h"

namespace lmtp::cache {
namespace {

constexpr TokenId kNoneBehind = -1;

// Of this process alone: nobody can choose texts that all fall into one bucket.
std::uint64_t seed() {
  static const std::uint64_t kSeed = [] {
    std::random_device random;
    return std::uint64_t{random()} << 32 | random();
  }();
  return kSeed;
}

std::uint64_t hash_of_boundary(std::uint64_t boundary) { return mixed(boundary + seed()); }

std::uint64_t with_token(std::uint64_t hash, TokenId token) {
  return mixed(hash ^ static_cast<std::uint32_t>(token));
}

// The tokens from a boundary to the last one of a sequence.
std::span<const TokenId> behind(const ScoreCache::Place& place, std::span<const TokenId> tokens) {
  return tokens.subspan(static_cast<std::size_t>(place.num_blocks) * kBlockSize);
}

// A boundary lies before the last token.
void begin(ScoreCache::Place& place, int name_space, std::size_t num_tokens) {
  LMTP_CHECK(num_tokens > 0 && name_space >= 0, num_tokens, name_space);
  const bool is_before = static_cast<std::size_t>(place.num_blocks) * kBlockSize < num_tokens;
  if (place.num_blocks == 0 || !is_before) {
    place = {.boundary = static_cast<std::uint64_t>(name_space), .num_blocks = 0};
  }
}

}  // namespace

ScoreCache::ScoreCache(std::int64_t limit_bytes)
    : limit_bytes_(limit_bytes),
      // With the sentinel, and at most a bucket for each.
      capacity_(static_cast<std::size_t>(
          std::clamp<std::int64_t>(limit_bytes / std::int64_t{sizeof(Entry) + sizeof(Index)} - 1, 0,
                                   std::numeric_limits<Index>::max() - 1))) {
  LMTP_CHECK(limit_bytes >= 0, limit_bytes);
  if (!is_on()) return;
  entries_.reserve(capacity_ + 1);
  entries_.emplace_back();
  buckets_.resize(std::bit_floor(capacity_));
}

std::int64_t ScoreCache::num_bytes() const {
  return static_cast<std::int64_t>(entries_.size() * sizeof(Entry) +
                                   buckets_.size() * sizeof(Index));
}

ScoreCache::Tokens ScoreCache::tokens_of(const Entry& entry) {
  const auto end = std::ranges::find(entry.tokens, kNoneBehind);
  return {entry.tokens.data(), static_cast<std::size_t>(end - entry.tokens.begin())};
}

bool ScoreCache::holds(const Entry& entry, std::uint64_t boundary, Tokens tokens) {
  return entry.boundary == boundary &&
         std::equal(tokens.begin(), tokens.end(), entry.tokens.begin()) &&
         (tokens.size() == kBlockSize || entry.tokens[tokens.size()] == kNoneBehind);
}

ScoreCache::Index ScoreCache::bucket_of(std::uint64_t hash) const {
  return static_cast<Index>(mixed(hash) & (buckets_.size() - 1));
}

ScoreCache::Index ScoreCache::bucket_of(std::uint64_t boundary, Tokens tokens) const {
  std::uint64_t hash = hash_of_boundary(boundary);
  for (const TokenId token : tokens) hash = with_token(hash, token);
  return bucket_of(hash);
}

// 0: it is not there. Else it is the youngest from now on.
ScoreCache::Index ScoreCache::look_up(Index bucket, std::uint64_t boundary, Tokens tokens) {
  Index at = buckets_[bucket];
  while (at != 0 && !holds(entries_[at], boundary, tokens)) at = entries_[at].next;
  if (at != 0 && entries_[0].older != at) {
    unlink(at);
    append(at);
  }
  return at;
}

ScoreCache::Index ScoreCache::add_entry(Index bucket, std::uint64_t boundary, Tokens tokens) {
  if (const Index known = look_up(bucket, boundary, tokens); known != 0) return known;
  const Index at = take_entry();
  Entry& added = entries_[at];
  added.boundary = boundary;
  added.number = next_number_++;
  added.logprob = kUnknown;
  added.next = buckets_[bucket];
  added.bucket = bucket;
  std::ranges::fill(std::ranges::copy(tokens, added.tokens.begin()).out, added.tokens.end(),
                    kNoneBehind);
  buckets_[bucket] = at;
  append(at);
  return at;
}

// A new one, else the oldest.
ScoreCache::Index ScoreCache::take_entry() {
  if (entries_.size() <= capacity_) {
    entries_.emplace_back();
    return static_cast<Index>(entries_.size() - 1);
  }
  const Index at = entries_[0].younger;
  unlink(at);
  Index* link = &buckets_[entries_[at].bucket];
  while (*link != at) link = &entries_[*link].next;
  *link = entries_[at].next;
  return at;
}

// As the youngest.
void ScoreCache::append(Index at) {
  entries_[at].older = entries_[0].older;
  entries_[at].younger = 0;
  entries_[entries_[0].older].younger = at;
  entries_[0].older = at;
}

void ScoreCache::unlink(Index at) {
  entries_[entries_[at].older].younger = entries_[at].younger;
  entries_[entries_[at].younger].older = entries_[at].older;
}

std::optional<float> ScoreCache::find(int name_space, Tokens tokens, Place& place) {
  begin(place, name_space, tokens.size());
  for (;;) {
    const Tokens rest = behind(place, tokens);
    const Tokens block = rest.first(std::min<std::size_t>(kBlockSize, rest.size()));
    const Index at = look_up(bucket_of(place.boundary, block), place.boundary, block);
    if (at == 0) return std::nullopt;
    const Entry& found = entries_[at];
    if (rest.size() > kBlockSize) {
      place = {.boundary = found.number, .num_blocks = place.num_blocks + 1};
      continue;
    }
    if (std::isnan(found.logprob)) return std::nullopt;
    return found.logprob;
  }
}

void ScoreCache::add(int name_space, Tokens tokens, std::span<const float> logprobs, Place& place) {
  LMTP_CHECK(!logprobs.empty() && logprobs.size() <= kBlockSize, logprobs.size());
  begin(place, name_space, tokens.size());
  Tokens rest = behind(place, tokens);
  for (; rest.size() > kBlockSize; rest = rest.subspan(kBlockSize)) {
    const Tokens block = rest.first(kBlockSize);
    const Index at = add_entry(bucket_of(place.boundary, block), place.boundary, block);
    place = {.boundary = entries_[at].number, .num_blocks = place.num_blocks + 1};
  }
  LMTP_CHECK(logprobs.size() <= rest.size(), logprobs.size(), rest.size());
  // The buckets of all first: they are in no cache.
  std::array<Index, kBlockSize> buckets = {};
  std::uint64_t hash = hash_of_boundary(place.boundary);
  for (std::size_t i = 0; i < rest.size(); ++i) {
    hash = with_token(hash, rest[i]);
    buckets[i] = bucket_of(hash);
    __builtin_prefetch(&buckets_[buckets[i]]);
  }
  const std::size_t first = rest.size() - logprobs.size();
  for (std::size_t i = 0; i < logprobs.size(); ++i) {
    const Index at = add_entry(buckets[first + i], place.boundary, rest.first(first + i + 1));
    if (std::isnan(entries_[at].logprob)) entries_[at].logprob = logprobs[i];
  }
}

void ScoreCache::check_invariants() const {
  if (!is_on()) return;
  LMTP_CHECK(num_bytes() <= limit_bytes_, num_bytes(), limit_bytes_);
  std::size_t num_listed = 0;
  for (Index at = entries_[0].younger; at != 0; at = entries_[at].younger) {
    LMTP_CHECK(entries_[entries_[at].younger].older == at, at);
    ++num_listed;
  }
  std::size_t num_found = 0;
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    for (Index at = buckets_[bucket]; at != 0; at = entries_[at].next) {
      const Tokens tokens = tokens_of(entries_[at]);
      LMTP_CHECK(!tokens.empty() && entries_[at].bucket == bucket, at, bucket);
      LMTP_CHECK(bucket_of(entries_[at].boundary, tokens) == bucket, at, bucket);
      ++num_found;
    }
  }
  LMTP_CHECK(num_listed + 1 == entries_.size() && num_found == num_listed, num_listed, num_found,
             entries_.size());
}

}  // namespace lmtp::cache
