// Tokenizer: text to token ids and back, for the formats of Hugging Face folders.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"

namespace lmtp::tokenizer {

// Immutable once made; any thread.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Special tokens spelt out in the text become their ids; none is added.
  virtual std::vector<TokenId> encode(std::string_view text) const = 0;

  // The bytes of one token. Not necessarily whole UTF-8 characters; see StreamDecoder.
  // Unknown ids give no bytes.
  virtual std::string_view token_bytes(TokenId id) const = 0;

  virtual int vocab_size() const = 0;
  virtual TokenId bos_id() const = 0;  // -1: none
  virtual TokenId eos_id() const = 0;  // -1: none

  std::string decode(const std::vector<TokenId>& ids) const;
};

// Loads tokenizer.json, or vocab.json and merges.txt, from a folder.
// The error names the file and what would help.
Result<std::unique_ptr<Tokenizer>> load_tokenizer(const std::string& folder);

// Turns a stream of token bytes into text that never ends inside a character: bytes of an unfinished
// one are held back until it is whole, and become U+FFFD only when it can no longer be.
class StreamDecoder {
 public:
  std::string push(std::string_view bytes);
  // What was held back, as U+FFFD; the decoder is then as new.
  std::string finish();

 private:
  std::string held_;
};

}  // namespace lmtp::tokenizer
