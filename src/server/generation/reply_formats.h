// The formats of replies: what readers make of texts, by what the texts are known to be.
#pragma once

#include <memory>

#include "lmtp/text/reply_layout.h"
#include "lmtp/text/reply_scanner.h"
#include "offered_tools.h"
#include "reply.h"

namespace lmtp::server {

// Texts of a model whose way to write calls and reasoning is known. `layout` and `triggers`, which
// are the stream's grammar's, have the marks of text::mark_special(), as the texts do; what is left
// of marked text is none of the reply. Where a call is forced, the text begins with one. No call is
// made of a function that is not among `tools`; without any, all but the reasoning is content.
// loose: of these tools; not null.
ReplyFormat make_format(const text::ReplyLayout& layout, const OfferedTools& tools,
                        GrammarTriggers triggers, std::shared_ptr<const LooseFunctions> loose);

}  // namespace lmtp::server
