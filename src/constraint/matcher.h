// Matcher: how far one text has come in a grammar.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "llguidance_api.h"
#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"
#include "vocabulary.h"

namespace lmtp::constraint {

// Owner: whoever has taken it; one thread at a time. Where a function returns an error, the matcher
// is of no more use.
class Matcher {
 public:
  // kind, text: as llg_new_matcher() takes them. The error, kInvalid, is a sentence of the library.
  static Result<Matcher> make(std::shared_ptr<const Vocabulary> vocabulary, const std::string& kind,
                              const std::string& text);

  Matcher clone() const;
  // Not for a matcher that has failed.
  std::span<const TokenId> tokens() const { return tokens_; }
  // Nothing but an end token may follow.
  bool is_stopped() const { return api().matcher_is_stopped(handle_.get()); }

  // Back to the first num_kept tokens. False: it cannot; make a new one.
  bool set_back(std::size_t num_kept);
  // The error, kConstraint, names the token if the grammar does not allow it here.
  Result<void> consume(TokenId token);
  // The bits of what may follow. words: all zero.
  Result<void> mask(std::span<std::uint32_t> words);
  // The first token of the only text that may follow, or -1, and whether that text is longer.
  struct Forced {
    TokenId token = -1;
    bool has_more = false;
  };
  Result<Forced> forced();

 private:
  struct Free {
    const llg::Api* api;
    void operator()(llg::Matcher* matcher) const { api->free_matcher(matcher); }
  };

  Matcher(std::shared_ptr<const Vocabulary> vocabulary, llg::Matcher* handle)
      : vocabulary_(std::move(vocabulary)), handle_(handle, Free{&api()}) {}

  const llg::Api& api() const { return vocabulary_->api(); }
  std::string error_text() const;
  Error failed() const;

  std::shared_ptr<const Vocabulary> vocabulary_;  // outlives handle_
  std::unique_ptr<llg::Matcher, Free> handle_;
  std::vector<TokenId> tokens_;
};

}  // namespace lmtp::constraint
