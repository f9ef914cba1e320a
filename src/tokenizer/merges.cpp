#include "merges.h"

#include <algorithm>
#include <array>
#include <bit>
#include <queue>

namespace lmtp::tokenizer {
namespace {

// Up to this length, scanning all pairs after each merge is faster than a heap.
constexpr std::size_t kShortWord = 32;

// A symbol of a long word, in a linked list, so that a merge moves no others.
struct Symbol {
  TokenId token;
  std::int32_t previous, next;  // -1: none
};

struct Candidate {
  std::uint32_t rank;
  std::int32_t left;  // index of the left symbol
  TokenId left_token, right_token, merged;

  bool operator>(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : left > other.left;
  }
};

}  // namespace

void Merges::reserve(std::size_t num_merges) { grow(std::bit_ceil(num_merges * 2 + 2)); }

void Merges::add(TokenId left, TokenId right, Merge merge) {
  if ((num_merges_ + 1) * 2 > slots_.size()) grow(slots_.empty() ? 16 : slots_.size() * 2);
  PairSlot& slot = slot_of(pair_of(left, right));
  if (slot.pair == kEmpty) ++num_merges_;
  slot = {pair_of(left, right), merge};
}

Merges::Merge Merges::find(TokenId left, TokenId right) const {
  if (slots_.empty()) return {};
  const std::uint64_t pair = pair_of(left, right);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = hash_of(pair) & mask; slots_[i].pair != kEmpty; i = (i + 1) & mask) {
    if (slots_[i].pair == pair) return slots_[i].merge;
  }
  return {};
}

Merges::PairSlot& Merges::slot_of(std::uint64_t pair) {
  const std::size_t mask = slots_.size() - 1;
  std::size_t i = hash_of(pair) & mask;
  while (slots_[i].pair != kEmpty && slots_[i].pair != pair) i = (i + 1) & mask;
  return slots_[i];
}

void Merges::grow(std::size_t num_slots) {
  std::vector<PairSlot> old(num_slots);
  old.swap(slots_);
  for (const PairSlot& slot : old) {
    if (slot.pair != kEmpty) slot_of(slot.pair) = slot;
  }
}

void Merges::apply(std::vector<TokenId>& tokens, std::size_t begin) const {
  const std::span<TokenId> word = std::span(tokens).subspan(begin);
  if (word.size() < 2) return;
  tokens.resize(begin + (word.size() <= kShortWord ? apply_short(word) : apply_long(word)));
}

std::size_t Merges::apply_short(std::span<TokenId> word) const {
  std::array<Merge, kShortWord> merges;  // [i]: of word[i] and word[i + 1]
  std::size_t size = word.size();
  for (std::size_t i = 0; i + 1 < size; ++i) merges[i] = find(word[i], word[i + 1]);
  while (size > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < size; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == kNone) break;
    word[best] = merges[best].merged;
    for (std::size_t i = best + 1; i + 1 < size; ++i) {
      word[i] = word[i + 1];
      merges[i - 1] = merges[i];
    }
    --size;
    if (best > 0) merges[best - 1] = find(word[best - 1], word[best]);
    if (best + 1 < size) merges[best] = find(word[best], word[best + 1]);
  }
  return size;
}

std::size_t Merges::apply_long(std::span<TokenId> word) const {
  std::vector<Symbol> symbols(word.size());
  std::vector<Candidate> storage;
  storage.reserve(word.size());
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates(
      std::greater<>(), std::move(storage));
  const auto propose = [&](std::int32_t left, std::int32_t right) {
    if (left < 0 || right < 0) return;
    const TokenId a = symbols[static_cast<std::size_t>(left)].token;
    const TokenId b = symbols[static_cast<std::size_t>(right)].token;
    const Merge merge = find(a, b);
    if (merge.rank != kNone) candidates.push({merge.rank, left, a, b, merge.merged});
  };
  const auto size = static_cast<std::int32_t>(word.size());
  for (std::int32_t i = 0; i < size; ++i) {
    symbols[static_cast<std::size_t>(i)] = {word[static_cast<std::size_t>(i)], i - 1,
                                            i + 1 < size ? i + 1 : -1};
  }
  for (std::int32_t i = 0; i + 1 < size; ++i) propose(i, i + 1);

  while (!candidates.empty()) {
    const Candidate top = candidates.top();
    candidates.pop();
    Symbol& left = symbols[static_cast<std::size_t>(top.left)];
    // Stale if a neighbour has been merged since: tokens only grow, so equal tokens mean that
    // neither has changed. An unlinked symbol has token -1.
    if (left.token != top.left_token || left.next < 0) continue;
    Symbol& right = symbols[static_cast<std::size_t>(left.next)];
    if (right.token != top.right_token) continue;
    left.token = top.merged;
    left.next = right.next;
    right.token = -1;
    if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].previous = top.left;
    propose(left.previous, top.left);
    propose(top.left, left.next);
  }

  std::size_t num_left = 0;
  for (std::int32_t i = 0; i >= 0; i = symbols[static_cast<std::size_t>(i)].next) {
    word[num_left++] = symbols[static_cast<std::size_t>(i)].token;
  }
  return num_left;
}

}  // namespace lmtp::tokenizer
