#include "lmtp/cache/score_cache.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "hash.h"
#include "lmtp/base/check.h"
#include "lmtp/base/runtime.h"

namespace lmtp::cache {
namespace {

// Of this process alone: nobody can choose texts that all fall into one bucket.
std::uint64_t seed() {
  if (runtime::is_simulated()) return 0;  // which a process may run several of
  static const std::uint64_t kSeed = [] {
    runtime::RandomDevice random;
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

bool ScoreCache::Entry::has_link(std::size_t at) const {
  return at + 1 == kBlockSize ? num_tokens == kBlockSize : !std::isnan(logprobs[at]);
}

ScoreCache::ScoreCache(std::int64_t limit_bytes)
    : limit_bytes_(limit_bytes),
      // With the sentinel.
      capacity_(static_cast<std::size_t>(std::clamp<std::int64_t>(
          limit_bytes / std::int64_t{sizeof(Entry) + kBucketsAnEntry * sizeof(Link)} - 1, 0,
          std::numeric_limits<Link>::max() / kBlockSize - 1))) {
  LMTP_CHECK(limit_bytes >= 0, limit_bytes);
  if (!is_on()) return;
  entries_.reserve(capacity_ + 1);
  entries_.emplace_back();
  buckets_.resize(std::bit_floor((capacity_ + 1) * kBucketsAnEntry));
}

std::int64_t ScoreCache::num_bytes() const {
  return static_cast<std::int64_t>(entries_.size() * sizeof(Entry) +
                                   buckets_.size() * sizeof(Link));
}

ScoreCache::Buckets ScoreCache::buckets_of(std::uint64_t boundary, Tokens tokens) const {
  Buckets buckets = {};
  std::uint64_t hash = hash_of_boundary(boundary);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    hash = with_token(hash, tokens[i]);
    buckets[i] = static_cast<Index>(mixed(hash) & (buckets_.size() - 1));
  }
  return buckets;
}

// 0: it is not there. Else its entry is the youngest from now on.
ScoreCache::Link ScoreCache::look_up(Index bucket, std::uint64_t boundary, Tokens tokens) {
  const std::size_t at = tokens.size() - 1;
  for (Link link = buckets_[bucket]; link != 0;) {
    const Entry& entry = entry_of(link);
    if (link % kBlockSize == at && entry.boundary == boundary &&
        std::ranges::equal(entry.first(tokens.size()), tokens)) {
      use(link / kBlockSize);
      return link;
    }
    link = entry.next[link % kBlockSize];
  }
  return 0;
}

// The boundary behind the block, which is added if it is not there.
std::uint64_t ScoreCache::pass_block(std::uint64_t boundary, Tokens tokens) {
  const Index bucket = buckets_of(boundary, tokens).back();
  if (const Link known = look_up(bucket, boundary, tokens); known != 0) {
    return entry_of(known).number;
  }
  const Index at = place_for(0, boundary, tokens);
  add_link(bucket, at, kBlockSize - 1);
  return entries_[at].number;
}

// An entry of these tokens, or that begins with them: the one that holds all but the last, if it
// goes on in the same way, else a new one.
ScoreCache::Index ScoreCache::place_for(Index known, std::uint64_t boundary, Tokens tokens) {
  const std::size_t last = tokens.size() - 1;
  if (known != 0) {
    Entry& entry = entries_[known];
    if (entry.num_tokens == static_cast<int>(last)) {
      entry.tokens[last] = tokens[last];
      ++entry.num_tokens;
    }
    if (entry.tokens[last] == tokens[last]) return known;
  }
  const Index at = take_entry();
  Entry& added = entries_[at];
  added.boundary = boundary;
  added.number = next_number_++;
  std::ranges::copy(tokens, added.tokens.begin());
  added.logprobs.fill(kUnknown);
  added.num_tokens = static_cast<int>(tokens.size());
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
  remove_links(at);
  return at;
}

void ScoreCache::add_link(Index bucket, Index entry, std::size_t at) {
  entries_[entry].next[at] = buckets_[bucket];
  buckets_[bucket] = static_cast<Link>(entry * kBlockSize + at);
}

void ScoreCache::remove_links(Index at) {
  const Entry& entry = entries_[at];
  const auto num_tokens = static_cast<std::size_t>(entry.num_tokens);
  const Buckets buckets = buckets_of(entry.boundary, entry.first(num_tokens));
  for (std::size_t i = 0; i < num_tokens; ++i) __builtin_prefetch(&buckets_[buckets[i]]);
  for (std::size_t i = 0; i < num_tokens; ++i) {
    if (!entry.has_link(i)) continue;
    Link* link = &buckets_[buckets[i]];
    while (*link != at * kBlockSize + i) link = &entry_of(*link).next[*link % kBlockSize];
    *link = entry.next[i];
  }
}

void ScoreCache::use(Index at) {
  if (entries_[0].older == at) return;
  unlink(at);
  append(at);
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
    const Index bucket = buckets_of(place.boundary, block)[block.size() - 1];
    const Link link = look_up(bucket, place.boundary, block);
    if (link == 0) return std::nullopt;
    const Entry& found = entry_of(link);
    if (rest.size() > kBlockSize) {
      place = {.boundary = found.number, .num_blocks = place.num_blocks + 1};
      continue;
    }
    const float logprob = found.logprobs[block.size() - 1];
    if (std::isnan(logprob)) return std::nullopt;
    return logprob;
  }
}

void ScoreCache::add(int name_space, Tokens tokens, std::span<const float> logprobs, Place& place) {
  LMTP_CHECK(!logprobs.empty() && logprobs.size() <= kBlockSize, logprobs.size());
  begin(place, name_space, tokens.size());
  Tokens rest = behind(place, tokens);
  for (; rest.size() > kBlockSize; rest = rest.subspan(kBlockSize)) {
    place = {.boundary = pass_block(place.boundary, rest.first(kBlockSize)),
             .num_blocks = place.num_blocks + 1};
  }
  LMTP_CHECK(logprobs.size() <= rest.size(), logprobs.size(), rest.size());
  const Buckets buckets = buckets_of(place.boundary, rest);
  // The buckets of all first: they are in no cache.
  const std::size_t first = rest.size() - logprobs.size();
  for (std::size_t i = first; i < rest.size(); ++i) __builtin_prefetch(&buckets_[buckets[i]]);
  Index at = 0;  // holds the tokens before
  if (first > 0) at = look_up(buckets[first - 1], place.boundary, rest.first(first)) / kBlockSize;
  for (std::size_t i = first; i < rest.size(); ++i) {
    const Tokens known = rest.first(i + 1);
    if (const Link link = look_up(buckets[i], place.boundary, known); link != 0) {
      at = link / kBlockSize;
    } else {
      at = place_for(at, place.boundary, known);
      add_link(buckets[i], at, i);
    }
    float& logprob = entries_[at].logprobs[i];
    if (std::isnan(logprob)) logprob = logprobs[i - first];
  }
}

void ScoreCache::check_invariants() const {
  if (!is_on()) return;
  LMTP_CHECK(num_bytes() <= limit_bytes_, num_bytes(), limit_bytes_);
  std::size_t num_listed = 0;
  std::size_t num_links = 0;
  for (Index at = entries_[0].younger; at != 0; at = entries_[at].younger) {
    const Entry& entry = entries_[at];
    LMTP_CHECK(entries_[entry.younger].older == at, at);
    ++num_listed;
    const Buckets buckets =
        buckets_of(entry.boundary, entry.first(static_cast<std::size_t>(entry.num_tokens)));
    for (std::size_t i = 0; i < kBlockSize; ++i) {
      if (!entry.has_link(i)) continue;
      LMTP_CHECK(static_cast<int>(i) < entry.num_tokens, at, i);
      Link link = buckets_[buckets[i]];
      while (link != 0 && link != at * kBlockSize + i) {
        link = entries_[link / kBlockSize].next[link % kBlockSize];
      }
      LMTP_CHECK(link != 0, at, i);
      ++num_links;
    }
  }
  std::size_t num_found = 0;
  for (const Link first : buckets_) {
    for (Link link = first; link != 0; ++num_found) {
      link = entries_[link / kBlockSize].next[link % kBlockSize];
    }
  }
  LMTP_CHECK(num_listed + 1 == entries_.size() && num_found == num_links, num_listed, num_found,
             num_links, entries_.size());
}

}  // namespace lmtp::cache
