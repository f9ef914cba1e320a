#include "added_vocabulary.h"

#include <algorithm>

namespace lmtp::tokenizer {

void AddedVocabulary::add(std::span<const AddedToken> tokens, const WordModel& model) {
  for (const AddedToken& token : tokens) {
    if (token.special && !token.content.empty() && special_contents_.insert(token.content).second) {
      special_.push_back(token);
    }
  }
  const TokenId id_max = id_end_ - 1;
  TokenId next_id = model.num_tokens();
  if (!by_id_.empty() && (id_max >= next_id || next_id == 0)) next_id = id_max + 1;
  for (AddedToken token : tokens) {
    if (token.content.empty()) continue;
    const TokenId known = find(token.content, model);
    token.id = known >= 0 ? known : next_id++;
    const auto old = by_id_.find(token.id);
    if (old != by_id_.end() && old->second == token) continue;
    ids_.insert_or_assign(token.content, token.id);
    by_id_.insert_or_assign(token.id, token);
    id_end_ = std::max(id_end_, token.id + 1);
    if (!is_special(token.content)) plain_.push_back(token);
  }
}

TokenId AddedVocabulary::find(std::string_view content, const WordModel& model) const {
  const auto entry = ids_.find(std::string(content));
  return entry != ids_.end() ? entry->second : model.find(content);
}

const AddedToken* AddedVocabulary::token(TokenId id) const {
  const auto entry = by_id_.find(id);
  return entry == by_id_.end() ? nullptr : &entry->second;
}

bool AddedVocabulary::is_special(TokenId id) const {
  const AddedToken* added = token(id);
  return added != nullptr && is_special(added->content);
}

std::vector<AddedToken> AddedVocabulary::tokens() const {
  std::vector<AddedToken> all;
  for (const auto& [id, token] : by_id_) all.push_back(token);
  std::sort(all.begin(), all.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return all;
}

std::pair<AddedTokens, AddedTokens> AddedVocabulary::make_finders(
    const Normalizer& normalizer) const {
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normalized;
  NormalizerScratch scratch;
  for (const std::vector<AddedToken>* list : {&special_, &plain_}) {
    for (const AddedToken& listed : *list) {
      // The last flags count, except that a token stays in its list (special or plain).
      AddedToken token = by_id_.at(ids_.at(listed.content));
      token.special = list == &special_;
      if (listed.normalized) token.content = normalizer.apply(listed.content, scratch).text;
      (listed.normalized ? normalized : raw).push_back(std::move(token));
    }
  }
  return {AddedTokens(std::move(raw)), AddedTokens(std::move(normalized))};
}

}  // namespace lmtp::tokenizer
