// The reply format of a chat that must call a function: a grammar keeps the text to one call.
#pragma once

#include <string>
#include <vector>

#include "reply.h"

namespace lmtp::server {

// The calls that a text may be: an opening, the arguments as JSON, and the closing.
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
