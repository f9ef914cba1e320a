// Matchers: where the texts of a request and its forks are in their grammar.
//
// A matcher is no more than a cache of what a text's tokens lead to: whoever has tokens takes the
// matcher that has consumed most of them, brings it to their end, and gives it back. So streams
// that are cut, forked or computed again need nothing of each other.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "compiled_grammar.h"
#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"
#include "matcher.h"

namespace lmtp::constraint {

// Owner: the mask sources and stop checkers of a request and its forks. Any thread; nothing is
// computed while the lock is held.
class Matchers {
 public:
  explicit Matchers(std::shared_ptr<const CompiledGrammar> grammar) : grammar_(std::move(grammar)) {
    if (grammar_->resumed()) idle_.push_back(grammar_->resumed()->clone());
  }

  // A matcher that has consumed `tokens` and nothing more. The error, kConstraint, says why it
  // cannot, or which token the grammar does not allow.
  Result<Matcher> take(std::span<const TokenId> tokens);
  void give_back(Matcher matcher);
  // Whether a matcher that lies here has consumed `tokens` and more.
  bool goes_beyond(std::span<const TokenId> tokens) const;

  // Streams that take matchers: as many are kept.
  void add_stream();
  void remove_stream();

  const Vocabulary& vocabulary() const { return grammar_->vocabulary(); }

 private:
  // The one that shares most tokens, taken away, or a copy of it where another stream may need
  // those that it has consumed.
  std::optional<Matcher> take_nearest(std::span<const TokenId> tokens);

  const std::shared_ptr<const CompiledGrammar> grammar_;
  mutable std::mutex mutex_;
  std::vector<Matcher> idle_;    // the last used one last; guarded
  std::size_t num_streams_ = 0;  // guarded
};

}  // namespace lmtp::constraint
