// A SCORE of candidates.
#pragma once

#include <memory>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"
#include "lmtp/protocol/message.h"
#include "lmtp/registry/models.h"
#include "stream_rows.h"

namespace lmtp::server {

// The rows of the candidates, which follow that prompt. The error is about the field.
Result<std::shared_ptr<StreamRows>> candidate_rows(const protocol::ScoreMessage& message,
                                                   std::vector<TokenId> prompt,
                                                   const registry::ReadyModel& model);

}  // namespace lmtp::server
