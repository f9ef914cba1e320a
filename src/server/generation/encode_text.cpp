#include "encode_text.h"

#include <string>

#include "lmtp/tokenizer/tokenizer.h"

namespace lmtp::server {

Result<std::vector<TokenId>> encode_text(const registry::LoadedTokenizer& loaded,
                                         std::string_view field, std::string_view text,
                                         TextPlace place) {
  if (!loaded) {
    return Error{ErrorCode::kInvalid, std::string(field) +
                                          ": is text, and this model has no tokenizer here (" +
                                          loaded.error().message + "); send token ids"};
  }
  const tokenizer::Tokenizer& tokenizer = **loaded;
  auto ids = place.begins ? tokenizer.encode(text) : tokenizer.encode_continuation(text);
  if (!ids) return Error{ErrorCode::kInvalid, std::string(field) + ": " + ids.error().message};
  if (place.adds_bos && tokenizer.adds_bos()) ids->insert(ids->begin(), tokenizer.bos_id());
  return ids;
}

Error no_tokenizer(std::string_view field, const Error& reason) {
  return {ErrorCode::kInvalid, std::string(field) +
                                   ": needs a tokenizer, and this model has none here (" +
                                   reason.message + "); leave it out"};
}

}  // namespace lmtp::server
