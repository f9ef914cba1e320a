// StopChecker: what ends a stream by its text, looked at where its tokens are drawn, so that
// nothing is computed behind the end.
#pragma once

#include <memory>
#include <span>

#include "lmtp/base/ids.h"

namespace lmtp {

// Owner: a request, then its sequence; one thread at a time. Must not block.
class StopChecker {
 public:
  virtual ~StopChecker() = default;

  // True: the text ends with this token. `may_stop`: false while min_tokens is not reached; what is
  // found until then does not count, now or later.
  virtual bool push(TokenId token, bool may_stop) = 0;

  // One of the same kind for another stream: it has seen the tokens of `generated`, none of which
  // ended it, and they came behind `before`.
  virtual std::unique_ptr<StopChecker> restarted(std::span<const TokenId> before,
                                                 std::span<const TokenId> generated) const = 0;
};

}  // namespace lmtp
