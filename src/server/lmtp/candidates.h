// A SCORE of candidates: many rows, which the model has as samples of its stream, and one entry.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "generation/candidate_trie.h"
#include "lmtp/base/batch_limits.h"
#include "lmtp/base/ids.h"
#include "lmtp/base/result.h"
#include "lmtp/protocol/codec.h"
#include "lmtp/protocol/message.h"
#include "lmtp/registry/models.h"
#include "lmtp/registry/stream_canceller.h"
#include "lmtp/request/request.h"

namespace lmtp::server {

// Owner: its stream, on the session's strand.
struct CandidateRows {
  std::shared_ptr<CandidateTrie> trie;
  Request common;  // of all rows: the shared prompt
  // Those that are under way, by their sample.
  std::map<int, std::shared_ptr<registry::StreamCanceller>> live;
  std::size_t num_live_max = BatchLimits::kSequencesMax;  // fewer where the model has taken no more
  std::optional<protocol::ErrorEntry> error;  // with which the stream ends, once its rows have

  Request request_of(std::size_t row) const;
  // What ends the stream whose rows have all been read.
  protocol::TokenOrError answer(StreamId id) const;
};

// The trie of the candidates, which follow that prompt. The error is about the field.
Result<std::shared_ptr<CandidateTrie>> make_trie(const protocol::ScoreMessage& message,
                                                 const std::vector<TokenId>& prompt,
                                                 const registry::ReadyModel& model);

}  // namespace lmtp::server
