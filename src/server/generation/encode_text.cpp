#include "encode_text.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

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

Result<std::shared_ptr<const BadWords>> encode_bad_words(const registry::LoadedTokenizer& loaded,
                                                         std::vector<std::string> words) {
  if (!loaded) return no_tokenizer("bad_words", loaded.error());
  auto encoded = std::make_shared<BadWords>();
  std::vector<std::vector<TokenId>>& all = encoded->ids;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::size_t begin = words[i].find_first_not_of(" \t\n\v\f\r");
    const bool is_space = begin == std::string::npos;
    const std::string word = is_space ? words[i] : words[i].substr(begin);
    for (const std::string& text : is_space ? std::vector{word} : std::vector{word, " " + word}) {
      for (const bool begins : {true, false}) {
        auto ids = encode_text(loaded, "bad_words[" + std::to_string(i) + "]", text,
                               {.begins = begins, .adds_bos = false});
        if (!ids) return ids.error();
        if (!ids->empty()) all.push_back(std::move(*ids));
      }
    }
  }
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  encoded->texts = std::move(words);
  return std::shared_ptr<const BadWords>(std::move(encoded));
}

Error no_tokenizer(std::string_view field, const Error& reason) {
  return {ErrorCode::kInvalid, std::string(field) +
                                   ": needs a tokenizer, and this model has none here (" +
                                   reason.message + "); leave it out"};
}

}  // namespace lmtp::server
