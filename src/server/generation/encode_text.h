// A prompt's text to token ids.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"
#include "lmtp/registry/model_factory.h"
#include "lmtp/request/bad_words.h"

namespace lmtp::server {

struct TextPlace {
  bool begins = true;    // nothing comes before it
  bool adds_bos = true;  // as transformers' add_special_tokens
};

// The error is about `field`. Any thread; a long text takes long, see Encoder.
Result<std::vector<TokenId>> encode_text(const registry::LoadedTokenizer& loaded,
                                         std::string_view field, std::string_view text,
                                         TextPlace place);

// Each with and without a space in front, and as the beginning of a text and not, as far as the ids
// differ; spaces that a word itself begins with do not count, but where there is nothing else.
Result<std::shared_ptr<const BadWords>> encode_bad_words(const registry::LoadedTokenizer& loaded,
                                                         std::vector<std::string> words);

// The error of a field that needs a tokenizer, where the model has none for that reason.
Error no_tokenizer(std::string_view field, const Error& reason);

}  // namespace lmtp::server
