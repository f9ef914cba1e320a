// Tokenizer: text to token ids and back, for the formats of Hugging Face folders.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"

namespace lmtp::tokenizer {

// Immutable once made; any thread. What one thread encodes never waits for another.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The ids that Hugging Face `tokenizers` gives with add_special_tokens=False: special tokens
  // spelt out in the text become their ids; none is added. `text` may be any bytes: what is not
  // UTF-8 is read as Python's bytes.decode("utf-8", "replace") reads it, so each bad sequence is
  // encoded as U+FFFD.
  virtual std::vector<TokenId> encode(std::string_view text) const = 0;

  // The bytes of one token. Not necessarily whole UTF-8 characters; see StreamDecoder.
  // Unknown ids give no bytes. The view lives as long as the tokenizer.
  virtual std::string_view token_bytes(TokenId id) const = 0;

  // Whether the token is control rather than text (<|endoftext|>, <s>): a REPL does not show it.
  virtual bool is_special(TokenId id) const = 0;

  // One more than the highest id; ids below it may be unused.
  virtual int vocab_size() const = 0;
  virtual TokenId bos_id() const = 0;  // -1: none
  virtual TokenId eos_id() const = 0;  // -1: none

  // The text of the ids, special tokens included; always UTF-8 (bytes that are not become U+FFFD).
  std::string decode(std::span<const TokenId> ids) const;
};

// Loads tokenizer.json, or vocab.json and merges.txt, from a folder; both must be byte-level BPE
// (the GPT-2 kind). bos and eos are those of tokenizer_config.json, special_tokens_map.json or
// config.json, whichever names them first.
// The error names the file, what was found and which kinds are supported.
Result<std::unique_ptr<Tokenizer>> load_tokenizer(const std::string& folder);

// Turns a stream of token bytes into text that never ends inside a character: bytes of an
// unfinished one are held back until it is whole, and become U+FFFD only when it can no longer be.
// The pieces put together equal Python's bytes.decode("utf-8", "replace") of the whole, however it
// was cut. Owner: one stream; one thread.
class StreamDecoder {
 public:
  // The text that is certain by now.
  std::string push(std::string_view bytes);
  // What was held back, as U+FFFD; the decoder is then as new.
  std::string finish();

 private:
  std::string held_;  // at most 3 bytes: a proper prefix of one character
};

}  // namespace lmtp::tokenizer
