// A load consists of programs, each a sequence of steps of concurrent requests. A single request is
// a program of one step; LMQL's patterns have more (lmql_programs.h).
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

  // The requests of the next step, to be sent at once; none: the program has ended. Called first
  // without answers, then with those of the previous step, in the order of its requests.
  virtual std::vector<Request> next(const std::vector<Answer>& answers) = 0;
};

}  // namespace lmtp::tools
