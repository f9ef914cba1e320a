// Tokenizer: text to token ids and back, for the formats of Hugging Face folders.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"

namespace lmtp::tokenizer {

// Bytes of a text.
struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// Immutable once made; any thread. Concurrent calls do not wait for each other.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The ids of Hugging Face `tokenizers` with add_special_tokens=False: special tokens that the
  // text contains become their ids; none is added. `text` may be any bytes: invalid UTF-8 is
  // replaced by U+FFFD as in Python's bytes.decode("utf-8", "replace"). The error says that the
  // tokenizer's pattern takes too long on this text.
  virtual Result<std::vector<TokenId>> encode(std::string_view text) const = 0;

  // The same, but nothing that touches one of `plain` is a special token, nor anything that an
  // empty one of them lies in: what a user wrote there stays text. REQUIRES: the ranges are in
  // order and disjoint; where there are any, `text` is valid UTF-8, and they begin and end at
  // characters.
  virtual Result<std::vector<TokenId>> encode_around(std::string_view text,
                                                     std::span<const TextRange> plain) const = 0;

  // The same for a text that continues another: without the space that some tokenizers put in front
  // of every text. LMQL's queries send these ids. `plain`: as encode_around().
  Result<std::vector<TokenId>> encode_continuation(std::string_view text,
                                                   std::span<const TextRange> plain = {}) const;

  // Hugging Face's text of the ids, special tokens included; always UTF-8. It is the concatenation
  // of token_bytes() except: a tokenizer that puts a space in front of every text removes it here,
  // and each of a run of byte tokens (<0xE2>) that is not UTF-8 becomes U+FFFD.
  virtual std::string decode(std::span<const TokenId> ids) const = 0;

  // The bytes of one token inside a text. May be incomplete UTF-8 characters; see StreamDecoder.
  // Unknown ids give no bytes. The view lives as long as the tokenizer.
  virtual std::string_view token_bytes(TokenId id) const = 0;

  // The same for the first token of a text: without the spaces that decode() removes.
  std::string_view first_token_bytes(TokenId id) const;

  // Whether it is a control token (<|endoftext|>, <s>), which a REPL does not show.
  virtual bool is_special(TokenId id) const = 0;

  // One more than the highest id; ids below it may be unused.
  virtual int vocab_size() const = 0;
  virtual TokenId bos_id() const = 0;  // -1: none
  virtual TokenId eos_id() const = 0;  // -1: none

  // Whether the tokenizer's files put BOS in front of a text, as add_special_tokens=True does.
  virtual bool adds_bos() const = 0;

  // What they put after a text then, as those of embedding models do.
  virtual std::vector<TokenId> suffix() const { return {}; }

  // The most spaces that decode() removes from the beginning of a text.
  virtual std::size_t spaces_dropped_max() const = 0;
};

// Loads the tokenizer of a folder, from the first existing file of the list in docs/tokenizers.md,
// or that of a GGUF file.
// As in transformers, tokenizer_config.json, special_tokens_map.json, added_tokens.json and
// config.json name further tokens. The error names the file, what was found and what is supported.
Result<std::unique_ptr<Tokenizer>> load_tokenizer(const std::string& folder);

// The special tokens that the files of a folder name, or its class has by default, by role
// (bos_token, ...): transformers' special_tokens_map, but for lists.
Result<std::map<std::string, std::string>> named_special_tokens(const std::string& folder);

// Turns a stream of token bytes into text that never ends inside a character: the bytes of an
// incomplete character are held back until it is complete or invalid (then U+FFFD). The
// concatenated pieces equal Python's bytes.decode("utf-8", "replace") of all bytes. Owner: one
// stream; one thread.
class StreamDecoder {
 public:
  // The text that is complete so far.
  std::string push(std::string_view bytes);
  // The bytes held back, as U+FFFD; resets the decoder.
  std::string finish();

 private:
  std::string held_;  // at most 3 bytes: a proper prefix of one character
};

}  // namespace lmtp::tokenizer
