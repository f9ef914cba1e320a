// Charsmap: sentencepiece's precompiled_charsmap, as Hugging Face `tokenizers` applies it to a text
// (its normalizer Precompiled).
//
// Reference: github.com/huggingface/spm_precompiled 0.1.4, src/lib.rs; the order in which parts of
// a text are looked up: github.com/huggingface/tokenizers, src/normalizers/precompiled.rs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/base/result.h"

struct pcre2_real_code_8;

namespace lmtp::tokenizer {

// Immutable once made; any thread.
class Charsmap {
 public:
  // The trie's size in bytes (four bytes, little endian), the trie, which is a double array of
  // Darts-clone whose keys are UTF-8, and replacements with a NUL behind each; a key's value is
  // where its replacement begins. The error says what is wrong with the bytes.
  static Result<Charsmap> parse(std::string_view bytes);

  // Appends the normalized `text`. REQUIRES: valid UTF-8.
  void apply(std::string_view text, std::string& out) const;

 private:
  Charsmap() = default;

  // Of the shortest key that is a prefix of `part`. Out-of-range links and values, which only a
  // corrupt file has, count as no key.
  std::optional<std::string_view> replacement_of(std::string_view part) const;

  std::vector<std::uint32_t> trie_;  // never empty
  std::string replacements_;
  std::shared_ptr<const pcre2_real_code_8> grapheme_;
};

}  // namespace lmtp::tokenizer
