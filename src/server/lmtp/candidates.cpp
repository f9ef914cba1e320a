#include "candidates.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "dispatcher.h"
#include "events.h"
#include "generation/encode_text.h"
#include "lmtp/request/error_text.h"

namespace lmtp::server {
namespace {

Result<std::vector<TokenId>> ids_of(const protocol::Candidate& candidate, const std::string& field,
                                    std::size_t num_prompt, const registry::ReadyModel& model) {
  std::vector<TokenId> ids;
  if (const auto* text = std::get_if<std::string>(&candidate)) {
    auto encoded = encode_text(model.tokenizer, field, *text, {.begins = false, .adds_bos = false});
    if (!encoded) return encoded;
    ids = std::move(*encoded);
  } else {
    ids = std::get<std::vector<TokenId>>(candidate);
  }
  const engine::ModelLimits& limits = model.limits;
  int most = limits.total_tokens_max();
  if (limits.max_input_tokens > 0) most = std::min(most, limits.max_input_tokens);
  if (num_prompt + ids.size() > static_cast<std::size_t>(most)) {
    return Error{ErrorCode::kTooLong, field + ": is, with the prompt, " +
                                          std::to_string(num_prompt + ids.size()) +
                                          " tokens, allowed are at most " + std::to_string(most)};
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < limits.vocab_size) continue;
    return Error{ErrorCode::kInvalid, field + "[" + std::to_string(i) +
                                          "]: " + beyond_vocabulary(ids[i], limits.vocab_size)};
  }
  return ids;
}

}  // namespace

Request CandidateRows::request_of(std::size_t row) const {
  const ScoreRow& of = trie->rows()[row];
  Request request = common;
  request.key.sample = static_cast<int>(row);
  request.is_part = row > 0;
  request.prompt.insert(request.prompt.end(), of.prompt_tail.begin(), of.prompt_tail.end());
  request.scored = of.scored;
  request.params.logprob_token_ids = of.listed;
  request.wants_notices = common.wants_notices && row == 0;
  return request;
}

protocol::TokenOrError CandidateRows::answer(StreamId id) const {
  auto logprobs = trie->logprobs();
  if (!logprobs) return error_entry(id, logprobs.error());
  protocol::TokenEntry entry;
  entry.event = {.stream_id = id, .token = kNoToken, .finish_reason = FinishReason::kStop};
  entry.candidates = std::move(*logprobs);
  return entry;
}

Result<std::shared_ptr<CandidateTrie>> make_trie(const protocol::ScoreMessage& message,
                                                 const std::vector<TokenId>& prompt,
                                                 const registry::ReadyModel& model) {
  if (prompt.empty()) {
    return Error{ErrorCode::kInvalid,
                 "prompt: is empty, at least one token is needed before candidates"};
  }
  if (message.candidates.size() > kMaxCandidates) {
    return wrong_number_of_candidates(message.candidates.size());
  }
  std::vector<std::vector<TokenId>> candidates;
  candidates.reserve(message.candidates.size());
  for (const protocol::Candidate& one : message.candidates) {
    const std::string field = "candidates[" + std::to_string(candidates.size()) + "]";
    auto ids = ids_of(one, field, prompt.size(), model);
    if (!ids) return ids.error();
    candidates.push_back(std::move(*ids));
  }
  auto trie = CandidateTrie::make(candidates);
  if (!trie) return trie.error();
  return std::make_shared<CandidateTrie>(std::move(*trie));
}

void Dispatcher::begin_rows(StreamId id, Request request, const std::string& model_name, Peer& peer,
                            Answers& answers) {
  StreamTable::Live& live = *peer.streams.find(id);
  ExtendedStream& stream = *live.extended;
  const protocol::NoticeEntry accepted{.stream_id = id,
                                       .status = "accepted",
                                       .seed = request.params.seed,
                                       .model = model_name,
                                       .num_prompt = static_cast<int>(request.prompt.size())};
  const bool wants_notices = stream.wants_notices;
  stream.rows->common = std::move(request);
  live.canceller.reset();
  live.model = models_.lasting_name(model_name);
  stream.waiting.reset();
  Answers errors;
  submit_rows(id, peer, errors);
  if (wants_notices && errors.empty()) {
    protocol::serialize_notices({&accepted, 1}, answers.emplace_back());
  }
  std::ranges::move(errors, std::back_inserter(answers));
}

// As many as there may be; the others as these end.
void Dispatcher::submit_rows(StreamId id, Peer& peer, Answers& answers) {
  StreamTable::Live& live = *peer.streams.find(id);
  CandidateRows& rows = *live.extended->rows;
  while (!live.cancelled && rows.live.size() < rows.num_live_max) {
    const auto row = rows.trie->next_row();
    if (!row) return;
    registry::Submission submitted =
        server::submit(models_, requester(id, live.extended->arrival, peer), rows.request_of(*row));
    if (auto* canceller = std::get_if<std::shared_ptr<registry::StreamCanceller>>(&submitted)) {
      rows.live.emplace(static_cast<int>(*row), std::move(*canceller));
      continue;
    }
    const auto& [error, no_model] = std::get<registry::Refusal>(submitted);
    if (rows.live.empty()) return end(id, error, no_model, peer, answers);
    if (error.code == ErrorCode::kOverloaded) {
      rows.trie->return_row(*row);
      rows.num_live_max = rows.live.size();
    } else {
      rows.error = error_entry(id, error, no_model);
      peer.streams.cancel(id);
    }
  }
}

}  // namespace lmtp::server
