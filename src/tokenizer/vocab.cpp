#include "vocab.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <bit>

#include "lmtp/base/check.h"

namespace lmtp::tokenizer {
namespace {

std::uint32_t hash_of(std::string_view bytes) {
  return static_cast<std::uint32_t>(XXH3_64bits(bytes.data(), bytes.size()));
}

}  // namespace

void Vocab::reserve(std::size_t num_tokens, std::size_t num_bytes) {
  arena_.reserve(num_bytes);
  spans_.reserve(num_tokens);
  grow(std::bit_ceil(num_tokens + num_tokens / 4 + 2));
}

void Vocab::set_bytes(TokenId id, std::string_view bytes) {
  LMTP_CHECK(id >= 0, id);
  const auto i = static_cast<std::size_t>(id);
  if (i >= spans_.size()) spans_.resize(i + 1);
  spans_[i] = {static_cast<std::uint32_t>(arena_.size()), static_cast<std::uint32_t>(bytes.size())};
  arena_.append(bytes);
}

void Vocab::index(TokenId id) {
  if ((num_indexed_ + 1) * 5 > slots_.size() * 4) grow(slots_.empty() ? 16 : slots_.size() * 2);
  place({id, hash_of(bytes(id))});
  ++num_indexed_;
}

TokenId Vocab::find(std::string_view wanted) const {
  if (slots_.empty()) return -1;
  const std::uint32_t hash = hash_of(wanted);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = hash & mask; slots_[i].id >= 0; i = (i + 1) & mask) {
    if (slots_[i].hash == hash && bytes(slots_[i].id) == wanted) return slots_[i].id;
  }
  return -1;
}

void Vocab::grow(std::size_t num_slots) {
  std::vector<TokenSlot> old(num_slots);
  old.swap(slots_);
  for (const TokenSlot& slot : old) {
    if (slot.id >= 0) place(slot);
  }
}

void Vocab::place(TokenSlot slot) {
  const std::size_t mask = slots_.size() - 1;
  std::size_t i = slot.hash & mask;
  while (slots_[i].id >= 0) {
    if (slots_[i].hash == slot.hash && bytes(slots_[i].id) == bytes(slot.id)) break;
    i = (i + 1) & mask;
  }
  slots_[i] = slot;
}

}  // namespace lmtp::tokenizer
