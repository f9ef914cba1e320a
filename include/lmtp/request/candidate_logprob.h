// What is known of one of several texts that may follow a prompt.
#pragma once

namespace lmtp {

struct CandidateLogprob {
  double logprob = 0.0;  // the sum of its tokens'; may be -infinity
  int num_tokens = 0;
};

}  // namespace lmtp
