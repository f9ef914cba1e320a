// The formats of replies: what readers make of texts, by what the texts are known to be.
#pragma once

#include <string>
#include <vector>

#include "reply.h"

namespace lmtp::server {

// A grammar keeps the text to one of these calls: an opening, the arguments as JSON, the closing.
struct ForcedCalls {
  struct Call {
    std::string opening;
    std::string function;
  };

  std::vector<Call> calls;
  std::string closing;
};

// A text that ends before it can be told which call it is, is content.
ReplyFormat make_format(ForcedCalls calls);

}  // namespace lmtp::server
