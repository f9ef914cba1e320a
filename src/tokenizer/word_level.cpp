#include "word_level.h"

namespace lmtp::tokenizer {

void WordLevel::add_token(std::string_view text, TokenId id) {
  vocab_.set_bytes(id, text);
  vocab_.index(id);
  ++num_tokens_;
}

bool WordLevel::set_unknown(std::string_view text) {
  unk_id_ = vocab_.find(text);
  return unk_id_ >= 0;
}

void WordLevel::append_tokens(std::string_view word, std::vector<TokenId>& out) const {
  const TokenId id = vocab_.find(word);
  out.push_back(id >= 0 ? id : unk_id_);
}

}  // namespace lmtp::tokenizer
