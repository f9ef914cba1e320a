// Finds in a text, as it comes, where reasoning begins and ends and where a grammar takes over.
// The stream's constraint reads its bytes on the engine's side, and what answers reads its text on
// the connection's: both by this, so that they agree.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/request/grammar.h"
#include "lmtp/tokenizer/tokenizer.h"

namespace lmtp::text {

// With mark_special()'s marks in each text; the special tokens of all of them are appended.
GrammarTriggers mark_special(const tokenizer::Tokenizer& tokenizer, GrammarTriggers triggers,
                             std::vector<TokenId>* special = nullptr);

// Owner: one text; one thread. Copied for a fork.
class ReplyScanner {
 public:
  enum class Kind {
    kText,
    kReasoning,
    kReasoningEnd,
    kOpening,  // with it the scanner stops: `bytes` is all that came from its first byte on
  };
  struct Part {
    Kind kind = Kind::kText;
    std::string bytes = {};
  };

  // Shared by the texts of a request.
  explicit ReplyScanner(std::shared_ptr<const GrammarTriggers> triggers);

  // What has become certain with these bytes: what may become a marker is held back. REQUIRES: it
  // has not stopped.
  std::vector<Part> push(std::string_view bytes);
  // What is left, at the end of the text.
  std::vector<Part> finish();

  // After an opening: what began with it has ended, and these bytes follow.
  std::vector<Part> resume(std::string_view bytes);
  // After an opening: it was none. `bytes`: all from its first byte on.
  std::vector<Part> reject(std::string_view bytes);

  // Nothing opens any more.
  void end_openings() { has_openings_ = false; }
  bool has_openings() const { return has_openings_; }

  bool in_reasoning() const { return in_reasoning_; }
  bool has_stopped() const { return has_stopped_; }

 private:
  struct Found {
    enum class What { kNothing, kPartial, kReasoningBegin, kReasoningEnd, kOpening, kDropped };
    What what = What::kNothing;
    std::size_t length = 0;
  };

  Found find_at(std::size_t at) const;
  std::vector<Part> scan();
  void pass(char byte);

  std::shared_ptr<const GrammarTriggers> triggers_;
  std::string held_;
  bool in_reasoning_;
  bool is_fresh_ = true;      // nothing but white space since the start, or the last marker
  bool is_first_ = true;      // the same, since the start alone
  bool has_stopped_ = false;  // at an opening
  bool is_last_ = false;      // nothing follows
  bool in_fence_ = false;
  bool has_openings_ = true;
  bool is_line_start_ = true;
  int num_ticks_ = 0;  // that the line begins with, while it has nothing else
};

}  // namespace lmtp::text
