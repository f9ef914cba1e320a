// What is answered by many SCOREs and one entry: the model has these rows as samples of its stream.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "generation/score_rows.h"
#include "lmtp/base/batch_limits.h"
#include "lmtp/base/result.h"
#include "lmtp/protocol/codec.h"
#include "lmtp/protocol/message.h"
#include "lmtp/registry/stream_canceller.h"
#include "lmtp/request/request.h"

namespace lmtp::server {

// Owner: its stream, on the session's strand; before, what encodes it.
struct StreamRows {
  std::shared_ptr<ScoreRows> rows;
  int num_prompt = 0;  // tokens, for the notice
  // What the entry has that ends the stream; called once all rows have ended.
  std::function<Result<protocol::TokenEntry>()> answer;

  Request common = {};  // of all rows
  // Those that are under way, by their sample.
  std::map<int, std::shared_ptr<registry::StreamCanceller>> live = {};
  std::set<int> begun = {};                               // of these, those that have had events
  std::size_t num_live_max = BatchLimits::kSequencesMax;  // fewer where the model has taken no more
  std::optional<protocol::ErrorEntry> error = {};  // with which the stream ends, once its rows have

  Request request_of(ScoreOfRow row) const;
};

}  // namespace lmtp::server
