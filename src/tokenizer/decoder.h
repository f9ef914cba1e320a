// Decoder: from the spellings of tokens back to text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "split_pattern.h"

namespace lmtp::tokenizer {

// One step, as tokenizer.json names it. kBytes: GPT-2's spelling of bytes becomes text (ByteLevel);
// kJoin: a space between two tokens, where the file names no decoder.
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
  std::string content;                  // kReplace: by what; kStrip, kMetaspace: the character
  bool drops_first = false;             // kMetaspace: in the first token there is no space for it
  std::size_t start = 0;                // kStrip: how often at the start, at most
  std::size_t stop = 0;                 // and at the end
};

// For models that are not byte-level, whose tokens are bytes already. Immutable; any thread.
class Decoder {
 public:
  Decoder() = default;
  explicit Decoder(std::vector<DecoderStep> steps) : steps_(std::move(steps)) {}

  // Hugging Face's decode() of tokens, spelt as the vocabulary has them.
  std::string decode(std::vector<std::string> tokens) const;

  // The bytes of one token amid others. A byte token (<0xE2>) is its byte, where decode() has text
  // only for a whole run of them.
  std::string bytes_of(std::string_view spelling) const;

  // How many spaces decode() takes away at most at the beginning of a text.
  std::size_t spaces_dropped_max() const;

 private:
  void run(const DecoderStep& step, std::vector<std::string>& tokens) const;

  std::vector<DecoderStep> steps_;
};

}  // namespace lmtp::tokenizer
