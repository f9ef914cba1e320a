// The SCOREs, or embeddings, that one request is made of, where it asks for more than the log
// probabilities of its prompts.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "lmtp/base/ids.h"
#include "lmtp/base/pooling.h"
#include "lmtp/request/event.h"

namespace lmtp::server {

struct ScoreOfRow {
  std::size_t row = 0;
  std::vector<TokenId> prompt = {};
  std::vector<TokenId> scored = {};
  std::shared_ptr<const std::vector<TokenId>> listed = {};  // SamplingParams::logprob_token_ids
  int top_logprobs = 0;
  std::optional<int> part_tokens = {};  // Request::part_tokens
  Pooling pooling = Pooling::kNone;     // another one: an embedding of `prompt`, nothing is scored
};

// Owner: one request; on its strand.
class ScoreRows {
 public:
  virtual ~ScoreRows() = default;

  // The one to be submitted next. Nothing: there is none until another one has ended, or none at
  // all where none is under way.
  virtual std::optional<ScoreOfRow> next() = 0;
  // The model has taken no more of them: it comes again.
  virtual void give_back(std::size_t row) = 0;
  // The events of a row, in their order; after the last one end().
  virtual void read(std::size_t row, const TokenEvent& event) = 0;
  virtual void end(std::size_t row) = 0;
};

}  // namespace lmtp::server
