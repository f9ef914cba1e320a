// SplitPattern: finds the matches of a regular expression or of a literal text.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "byte_regex.h"
#include "lmtp/base/result.h"

struct pcre2_real_code_8;
struct pcre2_real_match_context_8;
struct pcre2_real_match_data_8;

namespace lmtp::tokenizer {

// Buffers of one search at a time. Owner: one encode().
class PatternScratch {
 public:
  PatternScratch() = default;
  PatternScratch(PatternScratch&& other) noexcept;
  PatternScratch& operator=(PatternScratch&&) = delete;
  ~PatternScratch();

  // Whether a search hit a limit; its results are then incomplete and must not be used.
  bool gave_up() const { return gave_up_; }

 private:
  friend class SplitPattern;
  std::string classes_;  // the text as character classes, one byte each (ByteRegex)
  pcre2_real_match_data_8* match_data_ = nullptr;
  pcre2_real_match_context_8* context_ = nullptr;
  bool gave_up_ = false;
};

// Immutable once made; any thread.
class SplitPattern {
 public:
  // The error names unsupported syntax.
  static Result<SplitPattern> regex(std::string_view pattern);
  // REQUIRES: !text.empty().
  static SplitPattern literal(std::string_view text);
  // Any one character of these.
  static SplitPattern one_of(std::span<const CodePointRange> ranges);

  struct Match {
    std::size_t begin, end;  // bytes of the text; may be empty, as between two words
  };

  // Iterates over the matches in a text, with exclusive use of the scratch. A search that hits a
  // limit ends as if there were no more matches, and sets the scratch's gave_up().
  class Finder {
   public:
    std::optional<Match> next();

   private:
    friend class SplitPattern;
    Finder(const SplitPattern& pattern, std::string_view text, PatternScratch& scratch);
    std::optional<Match> next_literal();
    // The byte at which the character `index` begins. REQUIRES: ascending calls.
    std::size_t byte_at(std::size_t index);

    const SplitPattern& pattern_;
    const std::string_view text_;
    PatternScratch& scratch_;
    bool ascii_ = false;    // characters are bytes
    std::size_t from_ = 0;  // where to search on: index of a character, or a literal's byte
    std::size_t last_end_ = kNowhere;  // of the last match; no empty match may begin here
    std::size_t at_char_ = 0;          // index of the character at at_byte_
    std::size_t at_byte_ = 0;
  };
  // REQUIRES: `text` is valid UTF-8 and outlives the Finder.
  Finder find_in(std::string_view text, PatternScratch& scratch) const;

 private:
  SplitPattern() = default;
  static Result<SplitPattern> compile(ByteRegex regex);

  // Whether there is one; `match` in characters.
  bool match_from(std::size_t from, PatternScratch& scratch, Match& match) const;

  static constexpr std::size_t kNowhere = static_cast<std::size_t>(-1);

  std::string literal_;  // if code_ is null
  CodePointTable classes_;
  std::shared_ptr<const pcre2_real_code_8> code_;
};

}  // namespace lmtp::tokenizer
