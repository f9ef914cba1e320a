// StopChecker: what ends a stream by its text, looked at where its tokens are drawn, so that
// nothing is computed behind the end.
#pragma once

#include "lmtp/base/ids.h"

namespace lmtp {

// Owner: a request, then its sequence; one thread at a time. Must not block.
class StopChecker {
 public:
  virtual ~StopChecker() = default;

  // True: the text ends with this token. `may_stop`: false while min_tokens is not reached; what is
  // found until then does not count, now or later.
  virtual bool push(TokenId token, bool may_stop) = 0;
};

}  // namespace lmtp
