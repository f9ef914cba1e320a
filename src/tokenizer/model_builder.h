// From the spellings in tokenizer files to a ByteBpeModel.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "byte_bpe.h"
#include "lmtp/base/result.h"

namespace lmtp::tokenizer {

// Highest id accepted: a broken file must not make us reserve the machine's memory.
inline constexpr TokenId kTokenIdMax = (1 << 24) - 1;

// Order of calls: reserve, all add_token, all add_merge, all add_added_token, take.
class ModelBuilder {
 public:
  ModelBuilder() { byte_tokens_.fill(-1); }

  void reserve(std::size_t num_tokens, std::size_t num_bytes, std::size_t num_merges);

  // A vocabulary entry, spelt in GPT-2's byte alphabet.
  Result<void> add_token(std::string_view spelling, std::int64_t id);

  // The merge of the next rank, as "left right" or as the two of them.
  Result<void> add_merge(std::string_view both);
  Result<void> add_merge(std::string_view left, std::string_view right);

  // Its content is plain text; a token that is in the vocabulary keeps the vocabulary's id.
  Result<void> add_added_token(AddedToken token);

  // -1 where neither the vocabulary nor the added tokens hold it.
  TokenId find(std::string_view spelling) const;

  ByteBpeModel& model() { return model_; }

 private:
  TokenId find_bytes(std::string_view bytes) const;

  ByteBpeModel model_;
  std::array<TokenId, 256> byte_tokens_;  // of the vocabulary's one-byte entries; -1: none
  std::uint32_t next_rank_ = 0;
  TokenId last_merged_ = -1;
  std::string buffer_;
};

// The same for a model that is built already.
TokenId find_spelling(const ByteBpeModel& model, std::string_view spelling);

}  // namespace lmtp::tokenizer
