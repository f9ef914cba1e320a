// What a Split does with its matches: the five behaviours of Hugging Face `tokenizers`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "split_pattern.h"

namespace lmtp::tokenizer {

enum class SplitBehavior : std::uint8_t {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,
};

// Gets matches and the gaps between them in order, and calls `emit(begin, end)` for each resulting
// piece. A piece is held back until nothing more can be merged into it.
template <typename Emit>
class PieceMaker {
 public:
  PieceMaker(SplitBehavior behavior, Emit emit) : behavior_(behavior), emit_(emit) {}

  void take(std::size_t begin, std::size_t end, bool is_match) {
    const bool joins = held_ && joins_held(is_match);
    previous_match_ = is_match;
    if (joins) {
      held_end_ = end;
      return;
    }
    finish();
    if (behavior_ == SplitBehavior::kRemoved && is_match) return;
    held_ = true;
    held_begin_ = begin;
    held_end_ = end;
  }
  void finish() {
    if (held_ && held_begin_ < held_end_) emit_(held_begin_, held_end_);
    held_ = false;
  }

 private:
  bool joins_held(bool is_match) const {
    switch (behavior_) {
      case SplitBehavior::kRemoved:
      case SplitBehavior::kIsolated:
        return false;
      case SplitBehavior::kMergedWithPrevious:
        return is_match && !previous_match_;
      case SplitBehavior::kMergedWithNext:
        return !is_match && previous_match_;
      case SplitBehavior::kContiguous:
        return is_match == previous_match_;
    }
    return false;
  }

  const SplitBehavior behavior_;
  Emit emit_;
  bool held_ = false;
  bool previous_match_ = false;
  std::size_t held_begin_ = 0, held_end_ = 0;
};

// Splits `text`. `invert`: exchanges matches and gaps.
template <typename Emit>
void split_text(const SplitPattern& pattern, SplitBehavior behavior, bool invert,
                std::string_view text, PatternScratch& scratch, Emit emit) {
  PieceMaker<Emit> pieces(behavior, emit);
  SplitPattern::Finder finder = pattern.find_in(text, scratch);
  std::size_t done = 0;
  while (const auto match = finder.next()) {
    if (match->begin > done) pieces.take(done, match->begin, invert);
    pieces.take(match->begin, match->end, !invert);
    done = match->end;
  }
  if (done < text.size()) pieces.take(done, text.size(), invert);
  pieces.finish();
}

}  // namespace lmtp::tokenizer
