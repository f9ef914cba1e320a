// Decoder: from the vocabulary's spellings of tokens to text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "split_pattern.h"

namespace lmtp::tokenizer {

// One step of tokenizer.json's decoder. kBytes: from GPT-2's spelling of bytes to text (ByteLevel);
// kJoin: a space between two tokens, if the file has no decoder.
struct DecoderStep {
  enum class Kind : std::uint8_t {
    kReplace,
    kByteFallback,
    kFuse,
    kStrip,
    kMetaspace,
    kBytes,
    kJoin
  };

  Kind kind = Kind::kFuse;
  std::optional<SplitPattern> pattern;  // kReplace
  std::string content;       // kReplace: the replacement; kStrip, kMetaspace: the character
  bool drops_first = false;  // kMetaspace: removed from the first token, not made a space
  std::size_t start = 0;     // kStrip: the most to strip at the start
  std::size_t stop = 0;      // and at the end
};

// Not used for byte-level models, whose tokens are bytes already. Immutable; any thread.
class Decoder {
 public:
  Decoder() = default;
  explicit Decoder(std::vector<DecoderStep> steps) : steps_(std::move(steps)) {}

  // Hugging Face's decode() of tokens, spelt as the vocabulary has them.
  std::string decode(std::vector<std::string> tokens) const;

  // The bytes of one token inside a text. A byte token (<0xE2>) gives its byte, while decode() has
  // text only for a whole run of them.
  std::string bytes_of(std::string_view spelling) const;

  // The most spaces that decode() removes from the beginning of a text.
  std::size_t spaces_dropped_max() const;

 private:
  void run(const DecoderStep& step, std::vector<std::string>& tokens) const;

  std::vector<DecoderStep> steps_;
};

}  // namespace lmtp::tokenizer
