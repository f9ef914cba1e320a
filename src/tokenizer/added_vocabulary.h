// AddedVocabulary: the tokens that stand beside a model's own, and which of them are special.
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
  // As Hugging Face does, whose ids these are: a token that the model knows keeps the model's id,
  // others get the next one; ids that files give are not looked at. A token given again with other
  // flags changes them.
  void add(std::span<const AddedToken> tokens, const WordModel& model);

  // -1 where neither this nor the model has it.
  TokenId find(std::string_view content, const WordModel& model) const;
  bool contains(std::string_view content) const { return ids_.contains(std::string(content)); }

  // nullptr for other ids. Lives until the next add().
  const AddedToken* token(TokenId id) const;
  bool is_special(TokenId id) const;
  TokenId id_end() const { return id_end_; }

  // All tokens, by id.
  std::vector<AddedToken> tokens() const;

  // What to look for in a text as it came, and in what is left of it once it is normalized.
  std::pair<AddedTokens, AddedTokens> make_finders(const Normalizer& normalizer) const;

 private:
  bool is_special(const std::string& content) const { return special_contents_.contains(content); }

  std::unordered_map<std::string, TokenId> ids_;
  std::unordered_map<TokenId, AddedToken> by_id_;
  // In the order in which they came, which decides where several look alike once normalized.
  std::vector<AddedToken> special_, plain_;
  std::unordered_set<std::string> special_contents_;
  TokenId id_end_ = 0;
};

}  // namespace lmtp::tokenizer
