// TriggerWalks: where the tokens of a stream are, by the triggers of its grammar.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/request/event.h"
#include "lmtp/request/grammar.h"
#include "lmtp/text/reply_scanner.h"
#include "matchers.h"

namespace lmtp::constraint {

// What holds for a stream's next token.
struct Place {
  bool is_free = true;
  // Where it is not free, the grammar's text: the generated tokens from there on, after these,
  // which are as good as the end of the one before.
  std::size_t begin = 0;
  std::vector<TokenId> before = {};
  // Reasoning may begin with this, in the place of what the grammar allows; kNoToken: it may not.
  TokenId also = kNoToken;
  TokenId only = kNoToken;  // it must be this: the reasoning has been long enough
  bool counts = true;       // stop strings and min_tokens do: the reasoning is over
  int num_counted = 0;      // tokens since then

  // The tokens of the grammar's text; in `room` only where some of them are not generated.
  std::span<const TokenId> text(std::span<const TokenId> generated,
                                std::vector<TokenId>& room) const;
};

// Like Matchers a cache of what tokens lead to. Owner: the mask source or the stop checker of one
// stream. Any thread.
class TriggerWalks {
 public:
  // `matchers`: null: the grammar allows anything.
  TriggerWalks(const GrammarTriggers& triggers, std::shared_ptr<const Vocabulary> vocabulary,
               std::shared_ptr<Matchers> matchers);

  // What it has found; with `matchers`, as another stream's.
  TriggerWalks(const TriggerWalks& other);
  TriggerWalks& operator=(const TriggerWalks&) = delete;
  ~TriggerWalks() = default;

  Place at(std::span<const TokenId> generated);
  // MaskSource's; 0 as well while another thread is at it.
  std::size_t num_free(std::span<const TokenId> generated, std::span<const TokenId> drafts);
  // Whether the stream must not end here.
  bool withholds_ends(const Place& place) const;
  const GrammarTriggers& triggers() const { return *triggers_; }
  // Else the grammar is of all after the reasoning.
  bool waits_for_openings() const;

 private:
  struct Walk {
    std::vector<TokenId> tokens = {};
    text::ReplyScanner scanner;
    Place place = {};
    bool may_reason = false;  // what has come may be the beginning of reasoning or of the grammar's
    int num_reasoning = 0;    // tokens
  };
  using Parts = std::vector<text::ReplyScanner::Part>;

  Walk begin() const;
  Walk& walk_to(std::span<const TokenId> generated);
  void push(TokenId token, Walk& walk) const;
  void follow_grammar(Walk& walk) const;
  void await_opening(Parts parts, Walk& walk) const;
  void await_reasoning(const Parts& parts, Walk& walk) const;
  void count(bool was_reasoning, Walk& walk) const;
  void begin_grammar(std::size_t num_bytes, Walk& walk) const;
  Result<void> take_text(const Walk& walk, bool* is_stopped = nullptr) const;
  std::string text_of(TokenId token) const;

  std::vector<TokenId> marker_ids_;                        // special tokens that have text here
  const std::shared_ptr<const GrammarTriggers> triggers_;  // with marks around special tokens
  const std::shared_ptr<const Vocabulary> vocabulary_;
  const std::shared_ptr<Matchers> matchers_;
  // Empty where the tokenizer cannot spell them.
  const std::vector<TokenId> reasoning_begin_;
  const std::vector<TokenId> reasoning_end_;
  mutable std::mutex mutex_;
  std::list<Walk> walks_;  // the last used one first; guarded
};

}  // namespace lmtp::constraint
