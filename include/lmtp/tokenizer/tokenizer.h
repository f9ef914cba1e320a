// Tokenizer: text to token ids and back, for the formats of Hugging Face folders.
#pragma once

#include <cstddef>
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
  // encoded as U+FFFD. The error says that the tokenizer's pattern takes too long on this text.
  virtual Result<std::vector<TokenId>> encode(std::string_view text) const = 0;

  // The same for a text that goes on after another: without the space that some tokenizers put in
  // front of every text. The ids are those that LMQL's queries send.
  Result<std::vector<TokenId>> encode_continuation(std::string_view text) const;

  // Hugging Face's text of the ids, special tokens included; always UTF-8. It is that of the
  // tokens' bytes but for two things: a tokenizer that puts a space in front of every text takes it
  // away here, and where byte tokens (<0xE2>) are no text each of their run becomes U+FFFD.
  virtual std::string decode(std::span<const TokenId> ids) const = 0;

  // The bytes of one token amid others. Not necessarily whole UTF-8 characters; see StreamDecoder.
  // Unknown ids give no bytes. The view lives as long as the tokenizer.
  virtual std::string_view token_bytes(TokenId id) const = 0;

  // The same where it is the first token of a text: without the spaces that decode() takes away.
  std::string_view first_token_bytes(TokenId id) const;

  // Whether the token is control rather than text (<|endoftext|>, <s>): a REPL does not show it.
  virtual bool is_special(TokenId id) const = 0;

  // One more than the highest id; ids below it may be unused.
  virtual int vocab_size() const = 0;
  virtual TokenId bos_id() const = 0;  // -1: none
  virtual TokenId eos_id() const = 0;  // -1: none

  // Whether the tokenizer's files say that a text begins with BOS, as add_special_tokens=True does.
  virtual bool adds_bos() const = 0;

  // How many spaces decode() takes away at most at the beginning of a text.
  virtual std::size_t spaces_dropped_max() const = 0;
};

// Loads the tokenizer of a folder, from the first that is there of the files that
// docs/tokenizers.md lists. As in transformers, tokenizer_config.json, special_tokens_map.json,
// added_tokens.json and config.json say which tokens there are besides. The error names the file,
// what was found and which kinds are supported.
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
