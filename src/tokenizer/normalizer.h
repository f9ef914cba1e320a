// Normalizer: transforms a text before it is split into words.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "charsmap.h"
#include "split_pattern.h"
#include "unicode_forms.h"

namespace lmtp::tokenizer {

// One step, as tokenizer.json names it.
struct NormalizerStep {
  enum class Kind : std::uint8_t {
    kForm,
    kPrepend,
    kReplace,
    kLowercase,
    kStrip,
    kNmt,
    kCharsmap,
    kSpellBytes
  };

  Kind kind = Kind::kPrepend;
  std::shared_ptr<const UnicodeFormer> form;  // kForm
  std::shared_ptr<const Charsmap> charsmap;   // kCharsmap
  std::string content;                        // kPrepend, kReplace
  std::optional<SplitPattern> pattern;        // kReplace
  bool strip_left = false;                    // kStrip
  bool strip_right = false;                   // kStrip
};

// Buffers of one Normalizer::apply() at a time; reused so that they need not grow again.
struct NormalizerScratch {
  std::array<std::string, 2> texts;  // each step reads from one and writes to the other
  PatternScratch pattern;
};

// Immutable once made; any thread.
class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}

  struct Normalized {
    std::string_view text;  // lives in the scratch, or is the input
    // Whether Hugging Face `tokenizers` counts the text's beginning as changed.
    bool front_moved = false;
  };
  // REQUIRES: `text` is valid UTF-8 and not in the scratch.
  Normalized apply(std::string_view text, NormalizerScratch& scratch) const;

  bool empty() const { return steps_.empty(); }

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace lmtp::tokenizer
