// What a load is made of: programs, each a sequence of steps of requests. A lone request is a
// program of one step; LMQL's patterns are longer ones (lmql_programs.h).
#pragma once

#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/protocol/message.h"

namespace lmtp::tools {

struct Request {
  std::vector<TokenId> prompt;
  std::vector<TokenId> scored;  // not empty: SCORE these; else GENERATE
  int max_tokens = 0;           // >= 1; GENERATE only
  int top_logprobs = 1;
  bool masked = false;  // with the load's large logit_bias
};

struct Answer {
  std::vector<TokenId> tokens;
  FinishReason finish_reason = FinishReason::kNone;
  std::vector<TokenLogprob> top_logprobs;  // of the last token
};

// Owner: the connection that runs it; one thread at a time.
class Program {
 public:
  virtual ~Program() = default;

  // The requests to send now, all at once; none: it is over. Called first without answers, then
  // with those to all requests of the step before, in their order.
  virtual std::vector<Request> next(const std::vector<Answer>& answers) = 0;
};

}  // namespace lmtp::tools
