// PreTokenizer: splits a normalized text into words, each of which the model tokenizes by itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "char_class.h"
#include "split_behavior.h"
#include "split_pattern.h"

namespace lmtp::tokenizer {

// One step. tokenizer.json's pre-tokenizers are one or more of them.
struct PreTokenizerStep {
  enum class Kind : std::uint8_t {
    kGpt2Words,     // GPT-2's pattern, by hand
    kSplit,         // pattern, behavior, invert
    kReplace,       // `content` in the place of each space
    kPrepend,       // `content` in front, where it is not there already
    kSpellBytes,    // each byte as a character of GPT-2's alphabet, for steps that follow
    kUnspellBytes,  // and back, for a model of bytes
    kMarkStarts,    // takes apart in front of each `content` (Metaspace's split)
    kMarkRuns,  // the same, but a run of `content` stays whole; see PreTokenizer::split_at_marks
  };

  Kind kind = Kind::kGpt2Words;
  std::string content;
  bool first_only = false;  // kPrepend: only at the beginning of the whole text
  std::optional<SplitPattern> pattern;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;
};

// Receives the words in order; they live until the call returns.
class WordSink {
 public:
  virtual ~WordSink() = default;
  virtual void take_word(std::string_view word) = 0;
};

// Buffers of one PreTokenizer::run() at a time.
struct PreTokenizerScratch {
  std::vector<std::string> texts;        // one for each step that changes its text
  std::vector<PatternScratch> patterns;  // one for each step that searches for a pattern
};

// Immutable once made; any thread.
class PreTokenizer {
 public:
  PreTokenizer() = default;
  explicit PreTokenizer(std::vector<PreTokenizerStep> steps) : steps_(std::move(steps)) {}

  // `at_start`: the text's first character is the first of all that is being encoded.
  // REQUIRES: `text` is valid UTF-8.
  void run(std::string_view text, bool at_start, PreTokenizerScratch& scratch,
           WordSink& sink) const;

  // Also ends words in front of a `mark` that follows another character. Does not change the
  // tokens if no token has a mark inside (WordModel::never_crosses); the shorter words can then be
  // found in WordCache.
  void split_at_marks(std::string_view mark);

  bool empty() const { return steps_.empty(); }

 private:
  struct Run;
  void run_step(std::size_t step, std::string_view text, bool at_start, const Run& run) const;
  void split_gpt2_words(std::size_t step, std::string_view text, const Run& run) const;
  void replace_spaces(std::size_t step, std::string_view text, bool at_start, const Run& run) const;
  void split_starts(std::size_t step, std::string_view text, bool at_start, const Run& run) const;

  std::vector<PreTokenizerStep> steps_;
  CharClasses classes_;
};

}  // namespace lmtp::tokenizer
