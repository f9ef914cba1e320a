// Chats of LMTP whose replies are read (docs/lmtp.md, "Parsed replies").
#pragma once

#include <memory>

#include "generation/read_grammar.h"
#include "generation/reply.h"
#include "generation/reply_plan.h"
#include "lmtp/base/result.h"
#include "lmtp/protocol/message.h"

namespace lmtp::server {

// What the chat asks of its reply; its grammar moves there. Tools that only their vendor runs leave
// the chat. The error is about the field. REQUIRES: message.chat, message.reading. Any thread.
Result<ReplyWishes> read_wishes(protocol::GenerateMessage& message, SchemaReading reading);

// What a token says beside its content. Null: nothing.
std::unique_ptr<protocol::ReplyPieces> pieces_of(Reply& reply);

}  // namespace lmtp::server
