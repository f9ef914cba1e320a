// LMTP's DECIDE.
#pragma once

#include <memory>

#include "lmtp/base/result.h"
#include "lmtp/protocol/message.h"
#include "lmtp/registry/models.h"
#include "stream_rows.h"

namespace lmtp::server {

// The rows that answer its questions. The error is about the field, with a line for each question
// that is wrong. Takes long: prompts are rendered and encoded.
Result<std::shared_ptr<StreamRows>> decide_rows(const protocol::DecideMessage& message,
                                                const registry::ReadyModel& model);

}  // namespace lmtp::server
