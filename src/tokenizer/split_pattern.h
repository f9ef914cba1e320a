// SplitPattern: where a text is taken apart, by a regular expression or by a literal text.
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

// What one thread at a time needs for finding. Owner: one encode().
class PatternScratch {
 public:
  PatternScratch() = default;
  PatternScratch(PatternScratch&& other) noexcept;
  PatternScratch& operator=(PatternScratch&&) = delete;
  ~PatternScratch();

  // Whether a search was given up at a limit, so that what was found since is not to be used.
  bool gave_up() const { return gave_up_; }

 private:
  friend class SplitPattern;
  std::string classes_;  // the text, a byte for each character
  pcre2_real_match_data_8* match_data_ = nullptr;
  pcre2_real_match_context_8* context_ = nullptr;
  bool gave_up_ = false;
};

// Immutable once made; any thread.
class SplitPattern {
 public:
  // The error says what of the expression is not supported.
  static Result<SplitPattern> regex(std::string_view pattern);
  // REQUIRES: !text.empty().
  static SplitPattern literal(std::string_view text);
  // Any one character of these.
  static SplitPattern one_of(std::span<const CodePointRange> ranges);

  struct Match {
    std::size_t begin, end;  // bytes of the text; may be empty, as between two words
  };

  // Walks over the matches in a text. The scratch belongs to it while it lives. A search that
  // takes too long ends as if there were no more matches; the scratch says so.
  class Finder {
   public:
    std::optional<Match> next();

   private:
    friend class SplitPattern;
    Finder(const SplitPattern& pattern, std::string_view text, PatternScratch& scratch);
    std::optional<Match> next_literal();
    // The byte at which the character `index` begins; never asked to go back.
    std::size_t byte_at(std::size_t index);

    const SplitPattern& pattern_;
    const std::string_view text_;
    PatternScratch& scratch_;
    bool ascii_ = false;    // then characters are bytes
    std::size_t from_ = 0;  // where the next match may begin: a character, or a literal's byte
    std::size_t last_end_ = kNowhere;  // of the last match, where no empty one may follow
    std::size_t at_char_ = 0;          // of at_byte_
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

  std::string literal_;  // where there is no regex
  CodePointTable classes_;
  std::shared_ptr<const pcre2_real_code_8> code_;
};

}  // namespace lmtp::tokenizer
