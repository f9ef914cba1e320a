#include "stream_rows.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "dispatcher.h"
#include "events.h"
#include "resolve.h"

namespace lmtp::server {

Request StreamRows::request_of(ScoreOfRow row) const {
  Request request = common;
  request.key.sample = static_cast<int>(row.row);
  request.part_tokens = row.part_tokens;
  request.prompt = std::move(row.prompt);
  request.scored = std::move(row.scored);
  request.params.top_logprobs = row.top_logprobs;
  request.params.logprob_token_ids = std::move(row.listed);
  request.wants_notices = common.wants_notices && row.row == 0;
  return request;
}

void Dispatcher::begin_rows(StreamId id, Request request, const std::string& model_name, Peer& peer,
                            Answers& answers) {
  StreamTable::Live& live = *peer.streams.find(id);
  ExtendedStream& stream = *live.extended;
  const protocol::NoticeEntry accepted{.stream_id = id,
                                       .status = "accepted",
                                       .seed = request.params.seed,
                                       .model = model_name,
                                       .num_prompt = stream.rows->num_prompt};
  const bool wants_notices = stream.wants_notices;
  stream.rows->common = std::move(request);
  live.canceller.reset();
  live.model = models_.of(peer.caller).lasting_name(model_name);
  stream.waiting.reset();
  Answers errors;
  submit_rows(id, peer, errors);
  if (wants_notices && errors.empty()) {
    protocol::serialize_notices({&accepted, 1}, answers.emplace_back());
  }
  std::ranges::move(errors, std::back_inserter(answers));
}

// As many as there may be; the others as these end. After the last one comes the answer.
void Dispatcher::submit_rows(StreamId id, Peer& peer, Answers& answers) {
  StreamTable::Live& live = *peer.streams.find(id);
  StreamRows& rows = *live.extended->rows;
  while (!live.cancelled && rows.live.size() < rows.num_live_max) {
    std::optional<ScoreOfRow> next = rows.rows->next();
    if (!next) return rows.live.empty() ? answer_rows(id, peer, answers) : void();
    const std::size_t row = next->row;
    registry::Submission submitted =
        server::submit(models_.of(peer.caller), requester(id, live.extended->arrival, peer),
                       rows.request_of(std::move(*next)));
    if (auto* canceller = std::get_if<std::shared_ptr<registry::StreamCanceller>>(&submitted)) {
      rows.live.emplace(static_cast<int>(row), std::move(*canceller));
      continue;
    }
    const auto& [error, no_model] = std::get<registry::Refusal>(submitted);
    if (rows.live.empty()) return end(id, error, no_model, peer, answers);
    if (error.code == ErrorCode::kOverloaded) {
      rows.rows->give_back(row);
      rows.num_live_max = rows.live.size();
    } else {
      rows.error = error_entry(id, error, no_model);
      peer.streams.cancel(id);
    }
  }
}

void Dispatcher::answer_rows(StreamId id, Peer& peer, Answers& answers) {
  auto answered = peer.streams.find(id)->extended->rows->answer();
  if (!answered) return end(id, answered.error(), false, peer, answers);
  answered->event = {.stream_id = id, .token = kNoToken, .finish_reason = FinishReason::kStop};
  const std::string_view field = answered->decision ? "questions" : "candidates";
  const protocol::TokenOrError entry = std::move(*answered);
  std::string text;
  protocol::serialize_tokens({&entry, 1}, text);
  if (const std::size_t most = peer.limits.max_answer_bytes; text.size() > most) {
    return end(id, too_much(field, most), false, peer, answers);
  }
  answers.push_back(std::move(text));
  peer.streams.erase(id);
}

}  // namespace lmtp::server
