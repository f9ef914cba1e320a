// AddedVocabulary: the tokens in addition to the model's own, and which of them are special.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "added_tokens.h"
#include "lmtp/base/ids.h"
#include "normalizer.h"
#include "word_model.h"

namespace lmtp::tokenizer {

// Filled by a loader, then only read: any thread.
class AddedVocabulary {
 public:
  // Assigns ids as Hugging Face does: a token that the model knows keeps the model's id, others get
  // the next free one; ids in the files are ignored. A token added again takes the new flags.
  void add(std::span<const AddedToken> tokens, const WordModel& model);

  // -1 if neither this nor the model has it.
  TokenId find(std::string_view content, const WordModel& model) const;
  bool contains(std::string_view content) const { return ids_.contains(std::string(content)); }

  // nullptr if no added token has this id. Valid until the next add().
  const AddedToken* token(TokenId id) const;
  bool is_special(TokenId id) const;
  TokenId id_end() const { return id_end_; }

  // All tokens, by id.
  std::vector<AddedToken> tokens() const;

  // Finders for the raw text, and for the rest of it after normalization.
  std::pair<AddedTokens, AddedTokens> make_finders(const Normalizer& normalizer) const;

 private:
  bool is_special(const std::string& content) const { return special_contents_.contains(content); }

  std::unordered_map<std::string, TokenId> ids_;
  std::unordered_map<TokenId, AddedToken> by_id_;
  // In order of addition: of several that are equal when normalized, the first counts.
  std::vector<AddedToken> special_, plain_;
  std::unordered_set<std::string> special_contents_;
  TokenId id_end_ = 0;
};

}  // namespace lmtp::tokenizer
