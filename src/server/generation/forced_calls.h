// Calls of a model of which it is not known how it writes them: the whole text is one, as JSON.
#pragma once

#include "lmtp/request/grammar.h"
#include "offered_tools.h"
#include "reply.h"

namespace lmtp::server {

struct ForcedReply {
  Grammar grammar;
  ReplyFormat format;
};

// The arguments alone of the one function of a named choice; else {"name": "f", "arguments":
// {...}}, one of the functions. REQUIRES: there are functions.
ForcedReply force_calls(const OfferedTools& tools);

}  // namespace lmtp::server
