// Vocabulary: a model's tokens, as llguidance knows them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "llguidance_api.h"
#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"
#include "lmtp/tokenizer/tokenizer.h"

namespace lmtp::constraint {

// Owner: the grammars of a model. Immutable; any thread.
class Vocabulary {
 public:
  // vocab_size: of the logits. The tokenizer may have fewer ids, or more, which no text is spelled
  // with. Takes some milliseconds for each 10,000 tokens. The error is of the library.
  static Result<std::shared_ptr<const Vocabulary>> make(
      std::shared_ptr<const tokenizer::Tokenizer> tokenizer, int vocab_size,
      std::span<const TokenId> eos_ids);
  ~Vocabulary();
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  const llg::Api& api() const { return *api_; }
  const llg::Tokenizer* table() const { return table_; }
  int size() const { return size_; }
  bool is_eos(TokenId token) const;
  std::span<const std::uint32_t> eos_ids() const { return eos_ids_; }
  const std::shared_ptr<const tokenizer::Tokenizer>& tokenizer() const { return tokenizer_; }
  // "17 (" ,")", for messages.
  std::string describe(TokenId token) const;

  // Tokens of a text that continues another, none of them special, with exactly these bytes; fewer
  // where the tokenizer cannot spell them.
  std::vector<TokenId> spell(std::string_view text) const;
  // The same with the special tokens that the text contains.
  std::vector<TokenId> spell_marker(std::string_view text) const;

 private:
  Vocabulary(const llg::Api* api, std::shared_ptr<const tokenizer::Tokenizer> tokenizer, int size,
             std::span<const TokenId> eos_ids);

  Result<void> make_table();
  std::optional<std::vector<TokenId>> spelled_by(std::span<const TokenId> ids,
                                                 std::string_view front, std::string_view text,
                                                 bool has_special = false) const;
  std::vector<TokenId> spell_greedily(std::string_view text) const;

  const llg::Api* const api_;
  const std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  const int size_;
  std::vector<std::uint32_t> eos_ids_;
  std::unordered_map<std::string_view, TokenId> token_of_;  // not special ones
  std::size_t token_bytes_max_ = 0;
  llg::Tokenizer* table_ = nullptr;
};

}  // namespace lmtp::constraint
