// Vocab: maps token ids to bytes and bytes to token ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/base/ids.h"

namespace lmtp::tokenizer {

// Filled once by a loader, then only read: any thread.
class Vocab {
 public:
  void reserve(std::size_t num_tokens, std::size_t num_bytes);

  // REQUIRES: id >= 0. Replaces earlier bytes of the same id.
  void set_bytes(TokenId id, std::string_view bytes);
  // Makes find() return `id` for its bytes. REQUIRES: set_bytes(id) was called.
  void index(TokenId id);

  // Empty for unknown ids.
  std::string_view bytes(TokenId id) const {
    const auto i = static_cast<std::size_t>(id);
    if (i >= spans_.size()) return {};
    return std::string_view(arena_).substr(spans_[i].begin, spans_[i].size);
  }

  // -1 if no indexed token has these bytes.
  TokenId find(std::string_view bytes) const;

  int size() const { return static_cast<int>(spans_.size()); }  // one more than the highest id

 private:
  struct Span {
    std::uint32_t begin = 0, size = 0;
  };
  struct TokenSlot {
    TokenId id = -1;
    std::uint32_t hash = 0;
  };

  void grow(std::size_t num_slots);
  void place(TokenSlot slot);

  std::string arena_;
  std::vector<Span> spans_;       // by id
  std::vector<TokenSlot> slots_;  // open addressing, a power of two, at most 4/5 full
  std::size_t num_indexed_ = 0;
};

}  // namespace lmtp::tokenizer
