// What any tokenizer does at the beginning of a text, and where there is none.
#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/tokenizer/tokenizer.h"

namespace lmtp::tokenizer {

Result<std::vector<TokenId>> Tokenizer::encode_continuation(
    std::string_view text, std::span<const TextRange> plain) const {
  if (spaces_dropped_max() == 0) return encode_around(text, plain);
  std::vector<TextRange> moved(plain.begin(), plain.end());
  for (TextRange& range : moved) range = {range.begin + 1, range.end + 1};
  // Encodes the text after a character that does not merge with it.
  for (const std::string before : {"@", "^"}) {
    const auto front = encode(before);
    auto ids = encode_around(before + std::string(text), moved);
    if (!front || !ids) return ids;
    if (ids->size() < front->size() || !std::equal(front->begin(), front->end(), ids->begin())) {
      continue;
    }
    ids->erase(ids->begin(), ids->begin() + static_cast<std::ptrdiff_t>(front->size()));
    return ids;
  }
  return encode_around(text, plain);
}

std::string_view Tokenizer::first_token_bytes(TokenId id) const {
  std::string_view bytes = token_bytes(id);
  const std::size_t spaces = std::min(bytes.find_first_not_of(' '), bytes.size());
  bytes.remove_prefix(std::min(spaces, spaces_dropped_max()));
  return bytes;
}

}  // namespace lmtp::tokenizer
